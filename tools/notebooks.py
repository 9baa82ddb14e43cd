"""Run docs/notebooks/*.py and write reproducible .ipynb files, which the site shows.

A source is Python with `# %%` before each cell and `# %% [markdown]` before text. Cells run in this
process as in a kernel: their output is what they print, and the value of the last line. `python -m
tools.notebooks FOLDER` writes them.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CELL = re.compile(r"^# %%(?P<text> \[markdown\])?\n", re.M)
Notebook = dict[str, Any]
Output = dict[str, Any]
# The output must not depend on which packages are installed, and the site shows pictures, not
# scripts.
NOT_USED = ("altair",)


@dataclass(frozen=True)
class Cell:
    source: str
    is_text: bool


def cells_of(source: str) -> list[Cell]:
    """Split a source into cells: text without the `# ` of its lines, and code."""
    marks = list(CELL.finditer(source))
    ends = [mark.start() for mark in marks[1:]] + [len(source)]
    cells = []
    for mark, end in zip(marks, ends, strict=True):
        body = source[mark.end() : end].strip("\n")
        cells.append(
            Cell(
                re.sub(r"^# ?", "", body, flags=re.M) if mark["text"] else body, bool(mark["text"])
            )
        )
    return cells


@contextmanager
def without(names: tuple[str, ...]) -> Iterator[None]:
    """Hide packages, as if they were not installed."""
    loaded = {name: sys.modules.get(name) for name in names}
    try:
        sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None is what refuses an import
        yield
    finally:
        for name, module in loaded.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def executed(source: str, name: str) -> Notebook:
    """Run a source and return the notebook with outputs; an error names the cell that failed."""
    space: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    count = 0
    with without(NOT_USED):
        for place, cell in enumerate(cells_of(source), start=1):
            shown: dict[str, Any] = {
                "id": f"cell-{place:02d}",
                "metadata": {},
                "source": cell.source.splitlines(keepends=True),
            }
            if cell.is_text:
                cells.append({"cell_type": "markdown", **shown})
                continue
            count += 1
            try:
                outputs = _run(cell.source, space, count)
            except Exception as wrong:
                raise RuntimeError(
                    f"cell {place} of {name} fails: {type(wrong).__name__}: {wrong}"
                ) from wrong
            cells.append(
                {"cell_type": "code", "execution_count": count, **shown, "outputs": outputs}
            )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _run(source: str, space: dict[str, Any], count: int) -> list[Output]:
    """Run a cell; return what it prints, and the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), space)  # noqa: S102 - running it is the point
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), space)  # noqa: S307
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append(
            {
                "name": "stdout",
                "output_type": "stream",
                "text": printed.getvalue().splitlines(keepends=True),
            }
        )
    if value is not None:
        outputs.append(
            {
                "data": _shown(value),
                "execution_count": count,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return outputs


def _shown(value: object) -> dict[str, list[str]]:
    """Value in the representations that a notebook stores."""
    data = {"text/plain": repr(value)}
    drawn = value._repr_html_() if hasattr(value, "_repr_html_") else None
    if drawn is not None:
        data = {"text/html": drawn, **data}
    return {kind: text.splitlines(keepends=True) for kind, text in data.items()}


def written(notebook: Notebook) -> str:
    """Serialize a notebook as in its file."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def notebooks(folder: Path) -> dict[Path, str]:
    """Expected content of each notebook of a folder."""
    return {
        source.with_suffix(".ipynb"): written(
            executed(source.read_text(encoding="utf-8"), source.name)
        )
        for source in sorted(folder.glob("*.py"))
    }


def page(notebook: Notebook, name: str) -> str:
    """Executed notebook as Markdown, for Sphinx."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "text/html" in data:
                parts.append(f"````{{raw}} html\n{''.join(data['text/html'])}\n````")
            else:
                parts.append(
                    f"```text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```"
                )
    parts.append(f"The notebook itself: {{download}}`{name}`.")
    return "\n\n".join(parts) + "\n"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for path, text in notebooks(Path(sys.argv[1])).items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Size and names of the source in numbers: `python -m tools.house [FOLDER ...]` prints a table for each folder, or one line of JSON.

Counted are Python files. Code lines hold something else than comments, docstrings and blanks; tokens are those of `tokenize` without
comments, line ends and indentation.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

BANNED = ("found", "told", "held", "given", "one", "rest", "way", "said", "kept", "wrong")
"""Names of variables that say nothing about what they hold; see CONTRIBUTING.md."""
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class House:
    """What is counted, over all files that were added."""

    counts: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    stems: Counter[str] = field(default_factory=Counter)

    def add(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        if path.stem not in ("__init__", "__main__"):
            self.stems[path.stem] += 1
        self.counts["files"] += 1
        self.counts["lines"] += len(text.splitlines())
        self._add_tokens(text, tree)
        for node in ast.walk(tree):
            if isinstance(node, Functions):
                self.counts["functions"] += 1
            elif isinstance(node, ast.ClassDef):
                self.counts["classes"] += 1
                self.classes[node.name] += 1
            elif isinstance(node, ast.Name) and node.id == "Any":
                self.counts["uses of Any"] += 1
            if _bound_name(node) in BANNED:
                self.counts["banned variables, bound"] += 1

    def _add_tokens(self, text: str, tree: ast.Module) -> None:
        documented = _docstring_lines(tree)
        code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in LAYOUT:
                continue
            self.counts["tokens"] += 1
            self.counts["banned variables, tokens"] += token.type == tokenize.NAME and token.string in BANNED
            code.update(range(token.start[0], token.end[0] + 1))
        self.counts["code lines"] += len(code - documented)
        self.counts["docstring lines"] += len(documented)

    def table(self) -> dict[str, int]:
        """Every count by its name. A name that three modules share counts once among the shared names."""
        names = ("files", "lines", "code lines", "docstring lines", "tokens", "functions", "classes")
        return {
            **{name: self.counts[name] for name in names},
            "class names in several places": sum(count > 1 for count in self.classes.values()),
            "module names in several places": sum(count > 1 for count in self.stems.values()),
            "banned variables, bound": self.counts["banned variables, bound"],
            "banned variables, tokens": self.counts["banned variables, tokens"],
            "uses of Any": self.counts["uses of Any"],
        }


def _bound_name(node: ast.AST) -> str:
    """The name that a node binds: a variable that is assigned, or a parameter."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.ExceptHandler):
        return node.name or ""
    return node.arg if isinstance(node, ast.arg) else ""


def _docstring_lines(tree: ast.Module) -> set[int]:
    """The lines of docstrings, those below constants and fields too: texts that stand alone as a statement."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def measured(folder: Path) -> dict[str, int]:
    """The table of all Python files below a folder."""
    house = House()
    for path in sorted(folder.rglob("*.py")):
        house.add(path)
    return house.table()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("src"), Path("tests"), Path("tools")])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    options = parser.parse_args()
    tables = {str(folder): measured(folder) for folder in options.folders}
    if options.json:
        print(json.dumps(tables, indent=2))
        return
    print(f"{'':32}" + "".join(f"{name:>12}" for name in tables))
    for row in next(iter(tables.values()), {}):
        print(f"{row:32}" + "".join(f"{table[row]:>12,}" for table in tables.values()))


if __name__ == "__main__":
    main()

"""Notebooks of the gallery run, agree with their files, and can be shown by the site."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from tests.report.parsed_page import ParsedPage
from tests.tables import check_all
from tools.documents import agrees
from tools.notebooks import cells_of, executed, page, written

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))
NAMES = [source.stem for source in SOURCES]


def notebook(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return content


def test_the_five_are_there_and_listed() -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert {"numbers", "map", "categories", "users-with-many-items", "your-own-randomizer"} == set(
        NAMES
    )
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)
    for name in NAMES:
        assert f"]({name}.ipynb)" in index
        assert f"\n{name}\n" in index


@check_all("name", NAMES)
def test_a_notebook_is_its_source_and_is_valid(name: str) -> None:
    kept = notebook(name)
    nbformat.validate(nbformat.from_dict(kept))
    cells = cells_of((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    assert [
        ("".join(cell["source"]), cell["cell_type"] == "markdown") for cell in kept["cells"]
    ] == [(cell.source, cell.is_text) for cell in cells], "run make docs"
    assert cells[0].source.startswith("# ")
    assert written(kept) == (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")


@check_all("name", NAMES)
def test_what_it_shows_is_whole_and_loads_nothing(name: str) -> None:
    outputs = [output for cell in notebook(name)["cells"] for output in cell.get("outputs", [])]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result"}
    drawn = [
        "".join(output["data"]["text/html"])
        for output in outputs
        if "text/html" in output.get("data", {})
    ]
    assert any("<svg" in html for html in drawn)
    ids = []
    for html in drawn:
        shown = ParsedPage(html)
        assert not shown.open
        assert not shown.targets
        ids += shown.ids
    assert len(ids) == len(set(ids))
    for output in outputs:
        plain = "".join(output.get("text") or output["data"]["text/plain"])
        assert " at 0x" not in plain
        assert "/home/" not in plain


@check_all("name", NAMES)
def test_seeded_releases_are_called_unsafe(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    if "Randomness.seeded" in text:
        assert "UNSAFE: seeded randomness was used" in text
        assert "**unsafe**" in text


@check_all("name", NAMES)
def test_links_of_notebooks_lead_somewhere(name: str) -> None:
    words = "\n".join(
        cell.source
        for cell in cells_of((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        if cell.is_text
    )
    targets = re.findall(r"\]\(([^)#\s]+)", words)
    assert targets
    for target in targets:
        assert (FOLDER / target).is_file(), target


@check_all("name", NAMES)
def test_a_page_of_the_site_has_all_of_it(name: str) -> None:
    kept = notebook(name)
    text = page(notebook(name), f"{name}.ipynb")
    for cell in kept["cells"]:
        assert "".join(cell["source"]) in text
    assert text.count("````{raw} html\n") == sum(
        "text/html" in output.get("data", {})
        for cell in kept["cells"]
        for output in cell.get("outputs", [])
    )
    assert f"{{download}}`{name}.ipynb`" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_what_its_file_has(name: str) -> None:
    """`make docs-check` looks at the same."""
    source = FOLDER / f"{name}.py"
    assert agrees(
        FOLDER / f"{name}.ipynb", written(executed(source.read_text(encoding="utf-8"), source.name))
    )


def test_a_last_digit_may_differ_in_a_notebook_and_nothing_else(tmp_path: Path) -> None:
    kept = tmp_path / "kept.ipynb"
    kept.write_text(
        "id answer-581bfcc9-title, share 18.15 %, 24 cells, at 109.22", encoding="utf-8"
    )
    assert agrees(kept, "id answer-dfd77d17-title, share 18.14 %, 24 cells, at 109.23")
    for text in (
        "share 18.17 %, 24 cells",
        "share 18.15 %, 25 cells",
        "part 18.15 %, 24 cells",
        "share 18.15 %, 24 cells, 1",
    ):
        assert not agrees(kept, f"id answer-581bfcc9-title, {text}, at 109.22")
    page = tmp_path / "kept.md"
    page.write_text("0.05", encoding="utf-8")
    assert agrees(page, "0.05")
    assert not agrees(page, "0.06")
    assert not agrees(tmp_path / "missing.md", "")


def test_cells_are_run_as_a_kernel_runs_them() -> None:
    """Names persist between cells; output and last value are stored, None is not; no altair."""
    before = sys.modules.get("altair")
    source = (
        "# %% [markdown]\n# # Title\n#\n# words\n\n# %%\nx = 2\nprint('a')\nx\n\n# %%\nx += "
        "1\n\n# %%\nprint(x)\n"
    )
    made = executed(source, "small.py")
    title, first, silent, last = made["cells"]
    assert title["source"] == ["# Title\n", "\n", "words"]
    assert [output["output_type"] for output in first["outputs"]] == ["stream", "execute_result"]
    assert first["outputs"][1]["data"] == {"text/plain": ["2"]}
    assert silent["outputs"] == []
    assert last["outputs"] == [{"name": "stdout", "output_type": "stream", "text": ["3\n"]}]
    assert [cell["id"] for cell in made["cells"]] == ["cell-01", "cell-02", "cell-03", "cell-04"]
    assert sys.modules.get("altair") is before
    assert page(made, "small.ipynb").startswith(
        "# Title\n\nwords\n\n```python\nx = "
        "2\nprint('a')\nx\n```\n\n```text\na\n```\n\n```text\n2\n```"
    )


def test_a_cell_that_fails_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"cell 2 of broken.py fails: ZeroDivisionError"):
        executed("# %%\nx = 1\n\n# %%\nx / 0\n", "broken.py")

"""Proof pages in docs/proofs: every named page exists and names its function."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

from tests.tables import check_all

import metricshuffle
from metricshuffle.citations import STATEMENTS

SOURCE = Path(metricshuffle.__file__).parent
PAGES = SOURCE.parents[1] / "docs" / "proofs"
LONGEST = 350
"""Words of a docstring; a longer proof gets a page."""


def docstrings() -> list[tuple[str, str]]:
    """(where, text) of every docstring of the package."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found.append(
                    (
                        f"{path.relative_to(SOURCE)}: {getattr(node, 'name', 'module')}",
                        ast.get_docstring(node) or "",
                    )
                )
    return found


def test_named_pages_exist_and_no_docstring_is_a_page() -> None:
    for where, text in docstrings():
        assert len(text.split()) <= LONGEST, (
            f"{where} has a docstring of {len(text.split())} words; move the proof to docs/proofs"
        )
        for page in re.findall(r"docs/proofs/([\w-]+\.md)", text):
            assert (PAGES / page).exists(), (
                f"{where} names docs/proofs/{page}, which does not exist"
            )


@check_all("page", sorted(path.name for path in PAGES.glob("*.md") if path.name != "index.md"))
def test_a_page_names_the_statement_it_proves(page: str) -> None:
    function = re.search(
        r"Proves the statement of `([\w.]+)`", (PAGES / page).read_text(encoding="utf-8")
    )
    assert function is not None
    import_module(function[1].rpartition(".")[0])
    assert f"docs/proofs/{page}" in STATEMENTS[function[1]].text
    assert page.removesuffix(".md") in (PAGES / "index.md").read_text(encoding="utf-8").split()

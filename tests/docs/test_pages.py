"""Tutorial and how-tos: their code runs and prints what they show; links work."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from tests.docs.blocks import run
from tests.tables import check_all

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
ELSEWHERE = {"run-on-a-cluster.md", "use-from-r.md", "use-with-flower.md"}
"""Commands for a cluster, R, and Flower: tests/spark and tests/interop run what they show."""
RUN = [
    "tutorial.md",
    "liars.md",
    *(
        f"how-to/{path.name}"
        for path in sorted((DOCS / "how-to").glob("*.md"))
        if path.name not in ELSEWHERE
    ),
]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.thorough
@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert run((DOCS / page).read_text(encoding="utf-8"), page) >= 2


def anchors(page: Path) -> set[str]:
    """The headings of a page as a browser addresses them, outside of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@check_all("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


def test_commands_named_in_the_documents_exist() -> None:
    from tools.reference import every_command

    from metricshuffle.cli.command_group import app

    known = {part for name, _ in every_command(app) for part in (name, name.split()[0])}
    for page in PAGES:
        for words in re.findall(
            r"(?:`|^\$ |^)metricshuffle +([a-z][a-z-]*(?: [a-z]+)?)",
            page.read_text(encoding="utf-8"),
            re.M,
        ):
            assert words in known or words.split()[0] in known, (
                f"{page.name} speaks of metricshuffle {words}"
            )


def test_nothing_on_the_site_is_fetched() -> None:
    """No page requests an external script or image; theme and style sheet are local."""
    for page in sorted(DOCS.rglob("*.md")):
        assert not re.search(
            r"!\[[^\]]*\]\(https?:|<script|<img[^>]+https?:", page.read_text(encoding="utf-8")
        ), page.name


def test_every_randomizer_has_a_section() -> None:
    from tools.randomizers_page import randomizers_page

    from metricshuffle import randomizers

    page = randomizers_page()
    assert page == (DOCS / "randomizers.md").read_text(encoding="utf-8"), "run make docs"
    for name in set(randomizers.__all__) - {"Randomizer"}:
        assert f"\n## {name}\n" in page

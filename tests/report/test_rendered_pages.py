"""Every page: well-formed, offline, escaped, and in the one style."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from tests.report.conftest import HOSTILE
from tests.report.parsed_page import ParsedPage
from tests.tables import check_all

import metricshuffle
import metricshuffle_papers
from metricshuffle.report.charts import vega

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "src", ROOT / "packages", ROOT / "examples")
TEMPLATES = Path(metricshuffle.__file__).parent / "report" / "templates"
STYLE = (TEMPLATES / "style.css").read_text(encoding="utf-8")
FILTER = Path(metricshuffle_papers.__file__).parent / "pages" / "templates" / "filter.js"
CHAPTERS = (TEMPLATES / "copy.js", TEMPLATES / "fold.js")
SCRIPTS = {"demo": CHAPTERS, "report": CHAPTERS, "reproduction": (FILTER,)}


def test_tags_nest(page: ParsedPage) -> None:
    assert page.html.startswith("<!DOCTYPE html>\n<html")
    assert page.html.endswith("</html>\n")
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))


def test_there_is_one_heading_above_all(page: ParsedPage) -> None:
    assert page.tags.count("h1") == page.tags.count("main") == page.tags.count("header") == 1
    assert "".join(page.texts["h1"]).strip()


def test_nothing_is_loaded(page: ParsedPage) -> None:
    assert all(target.startswith("#") and target[1:] in page.ids for target in page.targets)
    assert not {"link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"https?:|@import|url\((?!#)", page.html)
    assert any(value.startswith("default-src 'none'") for value in page.values)


def test_what_others_wrote_is_escaped_once(page: ParsedPage) -> None:
    assert page.text.count(HOSTILE) >= 3
    assert "<b>&" not in page.html
    assert not re.search(r"&amp;(lt|gt|amp|quot|#\d+);", page.html)


@check_all("name", ["demo", "report", "users_compare", "reproduction"])
def test_charts_escape_too(pages: dict[str, ParsedPage], name: str) -> None:
    page = pages[name]
    assert any(
        HOSTILE in text for text in page.texts["text"]
    )  # the title of an axis, drawn by vl-convert
    assert any(HOSTILE in text for text in page.texts["desc"])


def test_the_report_escapes_a_unit_wherever_it_stands(pages: dict[str, ParsedPage]) -> None:
    page = pages["demo"]
    for tag in ("small", "dd", "td", "th", "p", "li", "caption", "div", "text", "desc", "h3"):
        assert any(HOSTILE in text for text in page.texts[tag]), tag


def test_the_style_is_inlined(page: ParsedPage) -> None:
    assert page.tags.count("style") == 1
    assert "".join(page.texts["style"]).strip() == STYLE.strip()


def test_a_page_has_the_scripts_it_needs_and_no_other(pages: dict[str, ParsedPage]) -> None:
    for name, page in pages.items():
        written = "".join(file.read_text(encoding="utf-8") for file in SCRIPTS.get(name, ()))
        assert "".join(page.texts.get("script", [])).split() == written.split()
        assert ("script" in page.tags) == ("script-src" in page.html) == (name in SCRIPTS)


def test_the_policy_allows_this_style_and_these_scripts_by_their_hashes(page: ParsedPage) -> None:
    policy = next(value for value in page.values if value.startswith("default-src"))
    allowed = {
        f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
        for tag in ("style", "script")
        for text in page.texts.get(tag, [])
    }
    assert set(re.findall(r"'sha256-[^']*'", policy)) == allowed
    assert "unsafe" not in policy
    assert " style=" not in page.html  # which the policy would not let through
    assert not re.search(r" on[a-z]+=", page.html)


@check_all("colour", ["INK", "MUTED", "GRID", "BLUE", "VERMILLION", "GREEN", "PURPLE", "WATER"])
def test_the_style_knows_every_colour_of_the_charts(colour: str) -> None:
    value = getattr(vega, colour)
    assert f'svg [fill="{value}"] {{ fill: var(--' in STYLE
    assert f'svg [stroke="{value}"] {{ stroke: var(--' in STYLE


def test_every_variable_of_the_style_is_set() -> None:
    assert set(re.findall(r"var\((--[a-z-]+)\)", STYLE)) == set(re.findall(r"(--[a-z-]+):", STYLE))


def test_what_was_not_reached_is_told(pages: dict[str, ParsedPage]) -> None:
    page = pages["reproduction"]
    assert "1 items were not reached." in page.text
    assert "not reached" in page.texts["div"]
    assert f"failed {HOSTILE}" in page.text
    assert "20 numbers that have no printed counterpart" in page.texts["summary"]
    assert "± 0.25" in page.texts["small"]


def test_numbers_that_are_missing_leave_empty_cells(pages: dict[str, ParsedPage]) -> None:
    """The style hides cells that are empty on small screens, and a space would not be."""
    assert re.search(r'<td class="n" data-label="[a-z ]+"></td>', pages["reproduction"].html)
    assert not re.search(r"<td[^>]*>\s+", pages["reproduction"].html)


def test_markup_stands_in_templates_only() -> None:
    tag = re.compile(r"<(div|table|section|html|p|h[1-6]|span|td|tr|details|figure)[ >]")
    for path in (
        path for source in SOURCES for path in source.rglob("*.py") if "tests" not in path.parts
    ):
        assert not tag.search(path.read_text(encoding="utf-8")), path
        assert "Markup" not in path.read_text(encoding="utf-8"), path


def every_template() -> list[Path]:
    return [path for source in SOURCES for path in source.rglob("*.jinja")]


def test_only_a_drawing_is_passed_through() -> None:
    passed = [
        line.strip()
        for path in every_template()
        for line in path.read_text(encoding="utf-8").splitlines()
        if "| safe" in line or "|safe" in line
    ]
    # The live page puts fragments together that were rendered before, each by a template of its
    # own, and a QR code that segno draws.
    names = [re.search(r"(\S+) \| safe", line)[1] for line in passed]  # type: ignore[index]
    # A map to move holds its library and its data, where a name cannot end the script element.
    names_of_maps = {'id="map-data">\'', "library.script", "library.style"}
    assert sorted({*names} - names_of_maps) == [
        "answer",
        "collections",
        "inner",
        "it.marks",
        "more",
        "qr",
    ]
    assert not any("autoescape" in path.read_text(encoding="utf-8") for path in every_template())

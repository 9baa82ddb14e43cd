"""Design: contrasts and colours, keyboard and phone use, and all pages at 400 pixels."""

from __future__ import annotations

import html
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.parsed_page import ParsedPage
from tests.web.conftest import launched

from metricshuffle import Grid, Histogram, Integers, Mean, Target, plan
from metricshuffle.report.charts import vega
from metricshuffle.report.charts.vega import PHONE_WIDTH, SMALLEST_TEXT, narrow_spec
from metricshuffle.report.report_page import report
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle_papers.pages.reproduction import MARKS, MEANINGS, ShownVerdict, shown

TEMPLATES = Path(vega.__file__).parents[1] / "templates"
STYLE = (TEMPLATES / "style.css").read_text(encoding="utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
    for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[:2]
)
BOTH = pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])
VERDICTS = [ShownVerdict(words).kind for words in MEANINGS]
# Machado, Oliveira and Fernandes 2009: what linear RGB looks like without one kind of cones
SEEN_BY = {
    "everybody": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopes": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopes": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopes": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> Any:
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255.0
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Of WCAG 2."""
    dark, light = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def difference(one: str, other: str, eyes: str) -> float:
    """CIE 1976, between what those eyes see; 2 can be noticed, 10 at a glance."""
    seen = []
    for colour in (one, other):
        relative = np.maximum(TO_XYZ @ np.array(SEEN_BY[eyes]) @ linear(colour), 0.0) / (
            TO_XYZ @ np.ones(3)
        )
        x, y, z = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16.0 / 116.0)
        seen.append(np.array([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]))
    return float(np.linalg.norm(seen[0] - seen[1]))


@BOTH
@pytest.mark.parametrize("ink", ["ink", "muted", "accent", "good", "warn", "purple"])
def test_text_can_be_read_on_every_ground(tokens: dict[str, str], ink: str) -> None:
    for ground in ("page", "card", "tint", "tint-good", "tint-warn"):
        assert contrast(tokens[ink], tokens[ground]) >= 4.5, (ink, ground)


@BOTH
@pytest.mark.parametrize("verdict", VERDICTS)
def test_verdicts_can_be_read(tokens: dict[str, str], verdict: str) -> None:
    assert contrast(tokens[f"{verdict}-ink"], tokens[f"{verdict}-ground"]) >= 4.5
    assert (
        f".verdict.{verdict} {{ color: var(--{verdict}-ink); background: var(--{verdict}-ground);"
        in STYLE
    )


@BOTH
@pytest.mark.parametrize("eyes", SEEN_BY)
def test_verdicts_are_told_apart_by_everybody(tokens: dict[str, str], eyes: str) -> None:
    for one, other in itertools.combinations(VERDICTS, 2):
        apart = [
            difference(tokens[f"{one}-{part}"], tokens[f"{other}-{part}"], eyes)
            for part in ("ink", "ground")
        ]
        assert max(apart) >= 10.0, (one, other)


@pytest.mark.thorough
def test_verdicts_are_told_apart_without_any_colour(pages: dict[str, ParsedPage]) -> None:
    assert set(MARKS) == set(MEANINGS)
    assert len(set(MARKS.values())) == len(MARKS)
    assert (
        '<span class="verdict impossible"><span class="mark" '
        f'aria-hidden="true">{MARKS["impossible"]}</span>impossible</span>'
        in pages["reproduction"].html
    )


def test_both_schemes_set_the_same_colours() -> None:
    assert set(LIGHT) == set(DARK)
    assert {f"--{name}" for name in LIGHT} <= set(re.findall(r"var\((--[a-z-]+)\)", STYLE))


def test_charts_are_set_in_the_typeface_of_the_page() -> None:
    sans = re.search(r"--sans: (.*);", STYLE)
    assert sans is not None
    assert sans[1].replace('"', "") == vega.FONT
    assert "font: 16px/1.6 var(--sans)" in STYLE


def test_nothing_is_wider_than_a_telephone() -> None:
    """Fixed widths beyond 360 pixels only where there is room, and for drawings that scroll."""
    narrow = re.sub(
        r"@media screen and \(min-width: 1180px\) \{.*?\n\}", "", STYLE, flags=re.DOTALL
    )
    for rule, width in re.findall(r"([^{};]*\{[^{}]*?(?<![a-z-])(?:min-)?width: (\d+)px)", narrow):
        assert int(width) <= 360 or ".drawn" in rule, rule


def test_a_keyboard_gets_everywhere(page: ParsedPage) -> None:
    assert re.search(r'<body>\s*<a class="skip" href="#main">', page.html)
    assert '<main id="main" tabindex="-1">' in page.html
    assert page.html.count('class="scroll') == len(
        re.findall(r'class="scroll[^"]*" role="region" tabindex="0" aria-label="[^"]+"', page.html)
    )
    labels = re.findall(r'role="region" tabindex="0" aria-label="([^"]+)"', page.html)
    assert len(labels) == len(set(labels)) > 0
    assert ":focus-visible { outline:" in STYLE


def test_headings_are_in_order(page: ParsedPage) -> None:
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert page.html.startswith('<!DOCTYPE html>\n<html lang="en">')


def test_every_cell_knows_its_column(page: ParsedPage) -> None:
    bodies = re.findall(r"<tbody>.*?</tbody>", page.html, re.DOTALL)
    cells = [cell for body in bodies for cell in re.findall(r"<td[^>]*>", body)]
    assert cells
    assert all(" data-label=" in cell for cell in cells)
    assert not re.search(r"<th[^>]*></th>", page.html)


def test_thousands_are_separated(page: ParsedPage) -> None:
    written = [text for tag in ("td", "dd", "text") for text in page.texts.get(tag, [])]
    assert written
    for text in written:
        for digits in re.findall(r"(?<![\w.,])\d{4,}(?![\w]*-)", text):
            assert re.fullmatch("(19|20)[0-9]{2}", digits), text  # a year
    assert shown(12345.6) == "12,350"
    assert shown(1e-6) == "1e-06"


def test_axes_separate_them_too(drawn: list[vega.Spec], pages: dict[str, ParsedPage]) -> None:
    formats = {
        part["format"]
        for spec in drawn
        for part in dictionaries(spec)
        if isinstance(part.get("format"), str)
    }
    assert pages
    assert len(formats) >= 2
    assert all(written.startswith(",") or written == vega.SMALL_NUMBERS for written in formats)


def test_there_are_no_bars_on_logarithmic_axes(
    drawn: list[vega.Spec], pages: dict[str, ParsedPage]
) -> None:
    """They have no length that means anything; areas between two curves do."""
    assert pages
    for spec in drawn:
        for part in dictionaries(spec):
            mark = part.get("mark")
            if (mark.get("type") if isinstance(mark, dict) else mark) == "bar":
                assert not any(inner.get("type") == "log" for inner in dictionaries(part)), part
    logarithmic = [
        spec for spec in drawn if any(part.get("type") == "log" for part in dictionaries(spec))
    ]
    assert any("way" in json.dumps(spec) for spec in logarithmic)


def dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    """All of them inside a specification."""
    if isinstance(value, dict):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from dictionaries(inner)


def test_a_narrow_chart_stands_below_itself_and_keeps_its_scale() -> None:
    across = {"field": "x", "scale": {"domain": [0, 60]}, "axis": {"tickCount": 9}}
    city = {
        "width": 480,
        "height": 320,
        "encoding": {"x": across, "y": {"field": "y", "scale": {"domain": [0, 40]}}},
        "mark": "point",
    }
    curve = {
        **city,
        "encoding": {"x": across, "y": {"field": "y", "scale": {"type": "log", "domain": [1, 40]}}},
    }
    changed = narrow_spec({"hconcat": [city, curve], "data": {"values": [{"width": 999}]}}, 300)
    assert [(panel["width"], panel["height"]) for panel in changed["vconcat"]] == [
        (300, 200),
        (300, 320),
    ]
    assert changed["vconcat"][0]["encoding"]["x"]["axis"]["tickCount"] == 4
    assert changed["data"] == {"values": [{"width": 999}]}
    assert city["width"] == 480


def test_a_chart_that_fits_is_drawn_once_and_one_that_cannot_fit_scrolls() -> None:
    spec: dict[str, Any] = {
        "data": {"values": [{"a": 1}]},
        "mark": "point",
        "encoding": {"x": {"field": "a", "type": "quantitative"}},
    }
    assert vega.drawing({**spec, "width": 200}, "a", "b", "c").narrow is None
    wide = vega.drawing({**spec, "width": 600}, "a", "b", "c")
    assert wide.narrow is not None
    assert abs(wide.narrow.width - PHONE_WIDTH) <= 8
    assert not wide.scrolls
    label = {"mark": {"type": "text", "text": "too long " * 20}}
    long = vega.drawing({"width": 600, "layer": [spec, {**spec, **label}]}, "a", "b", "c")
    assert long.scrolls


MEASURED = """
<script>
addEventListener("load", () => {
  const measured = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument, seen = (part) => part.getClientRects().length > 0, view = frame.contentWindow;
    const letters = [...page.querySelectorAll("svg.chart text")].filter((text) => seen(text) && text.textContent.trim());
    const scaled = (text) => Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b);
    const sizes = letters.map((text) => parseFloat(view.getComputedStyle(text).fontSize) * scaled(text));
    const cells = [...page.querySelectorAll("table.stacks td")].filter(seen).map((cell) => cell.getBoundingClientRect().right);
    const result = {
      name: frame.title, asked: frame.width, wide: page.scrollingElement.scrollWidth,
      smallest: Math.min(...sizes), right: Math.max(0, ...cells),
      typefaces: [...new Set([page.body, ...letters].map((part) => view.getComputedStyle(part).fontFamily.replaceAll('"', "")))],
    };
    const button = [...page.querySelectorAll(".counts button")].find((part) => part.textContent.includes("impossible"));
    if (button) {
      const items = () => [...page.querySelectorAll("section[data-paper]")].filter(seen).length;
      const all = items();
      button.click();
      result.filtered = [all, items(), button.getAttribute("aria-pressed"), page.getElementById("found").textContent];
      button.click();
    }
    return result;
  });
  document.body.textContent = "MEASURED" + JSON.stringify(measured) + "MEASURED";
});
</script>
"""  # noqa: E501


@pytest.fixture(scope="module")
def measured(
    pages: dict[str, ParsedPage], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """All pages at two widths, as they are, each in a frame of one page that looks into them."""
    browser = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if browser is None:
        if os.environ.get("CI") == "true":
            pytest.fail(
                "there is no Chromium to look at the pages with; on Debian: apt-get "
                "install chromium."
            )
        pytest.skip(
            "there is no Chromium to look at the pages with; on Debian: apt-get install chromium."
        )
    folder = tmp_path_factory.mktemp("browser")
    frames = "".join(
        f'<iframe title="{name}" width="{width}" height="800" '
        f'srcdoc="{html.escape(page.html)}"></iframe>'
        for name, page in pages.items()
        for width in (400, 900)
    )
    (folder / "pages.html").write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><body>{frames}{MEASURED}', encoding="utf-8"
    )
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        "--disable-background-networking",
    )
    more = (
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=5000",
    )
    command = [browser, *options, *more, "--dump-dom", (folder / "pages.html").as_uri()]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found: list[dict[str, Any]] = json.loads(html.unescape(told.split("MEASURED")[1]))
    assert len(found) == 2 * len(pages)
    return found


@pytest.mark.thorough
def test_no_page_is_wider_than_its_window(measured: list[dict[str, Any]]) -> None:
    assert {
        (found["name"], found["asked"]) for found in measured if found["wide"] > int(found["asked"])
    } == set()


@pytest.mark.thorough
def test_no_cell_hides_beyond_the_edge_of_a_telephone(measured: list[dict[str, Any]]) -> None:
    for found in measured:
        if int(found["asked"]) <= 400:
            assert found["right"] <= int(found["asked"]), found


@pytest.mark.thorough
def test_letters_of_charts_can_be_read_on_a_telephone(measured: list[dict[str, Any]]) -> None:
    assert all(found["smallest"] >= SMALLEST_TEXT for found in measured if found["asked"] == "400")


@pytest.mark.thorough
def test_the_policy_lets_the_style_through_and_everything_is_in_one_typeface(
    measured: list[dict[str, Any]],
) -> None:
    assert {typeface for found in measured for typeface in found["typefaces"]} == {vega.FONT}


@pytest.mark.thorough
def test_a_verdict_is_a_filter(measured: list[dict[str, Any]]) -> None:
    filtered = [found["filtered"] for found in measured if "filtered" in found]
    assert filtered == [[3, 1, "true", "1 of 3 items are shown."]] * 2


def report_files(folder: Path) -> dict[str, Path]:
    """Reports on a plan, a mean and a map, as a person makes them."""
    mean = plan(
        Mean(Integers(0, 1000, unit="kcal")),
        Target(1, 1e-6, 100),
        1000,
        honest=0.9,
        title="Lunch",
        question="How many kilocalories did your lunch have?",
    )
    city = plan(
        Histogram(Grid.from_box(46.94, 7.42, 46.96, 7.46, 500.0)), Target(1, 1e-6, 1000), 1000
    )
    middle = [(46.95, 7.44)] * 1000
    subjects = {
        "plan": ReportSubject.of(mean),
        "mean": ReportSubject.of(mean, mean.run([500] * 1000)),
        "map": ReportSubject.of(city, city.run(middle, coordinates="places")),
    }
    files = {name: folder / f"{name}.html" for name in subjects}
    for name, subject in subjects.items():
        files[name].write_text(report(subject), encoding="utf-8")
    return files


@pytest.mark.thorough
def test_a_report_fits_a_phone_and_two_sheets_and_begins_with_the_answer(tmp_path: Path) -> None:
    with launched() as browser:
        for name, file in report_files(tmp_path).items():
            shown = browser.new_page(viewport={"width": 400, "height": 800})
            shown.goto(file.as_uri())
            assert shown.evaluate("document.documentElement.scrollHeight") <= 6 * 800, name
            assert not shown.is_visible("#methods .paste")
            shown.click("#methods summary")
            assert shown.is_visible("#methods .paste")
            above = shown.evaluate(
                """() => { const figure = document.querySelector('#answer figure');
                return [...document.querySelectorAll('.notice, .promise, .big')].filter((part) =>
                  figure && part.compareDocumentPosition(figure) & 4).length; }"""
            )
            assert above == 0, name
            assert shown.locator(".promise").count() == 2
            printed = shown.pdf(format="A4")
            assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 2, name
            shown.close()

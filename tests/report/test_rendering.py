"""Templates to text."""

from __future__ import annotations

import sys

import pytest
from jinja2 import UndefinedError

from metricshuffle.errors import MissingExtra
from metricshuffle.report.charts.vega import svg
from metricshuffle.report.components import TextTable
from metricshuffle.report.template_engine import (
    render_template,
    rendered_from,
    require_report_extra,
)

SPEC = {
    "data": {"values": [{"a": 1}]},
    "mark": "point",
    "encoding": {"x": {"field": "a", "type": "quantitative"}},
}


def test_a_name_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="sections"):
        render_template("amplify.html.jinja", randomizer="krr", words="", parameters="")


@pytest.mark.parametrize("package", ["jinja2", "vl_convert"])
def test_without_the_extra_a_sentence(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingExtra, match=rf"'{package}'; install it with: pip install 'metricshuffle\[report\]'"
    ):
        require_report_extra()
    with pytest.raises(MissingExtra, match=package):
        svg(SPEC, "name", "Title", "Words")


def test_a_chapter_without_anything_to_draw() -> None:
    assert "No shuffled protocol with geometric noise" in rendered_from(
        "examples.demo", "report/distance.html.jinja", chapter=None
    )


def test_a_table_has_a_class_for_every_row() -> None:
    short = {"tables": [TextTable(("a",), [("1",), ("2",)], classes=["chosen"])]}
    with pytest.raises(UndefinedError):
        render_template("report/failures.html.jinja", chapter=short)


def test_a_chart_that_is_a_file_of_its_own() -> None:
    inline, alone = (
        svg(SPEC, "name", 'A "title"', "1 < 2", inline=inline) for inline in (True, False)
    )
    assert inline.startswith(
        '<svg class="chart" role="img" aria-labelledby="name-title name-desc" viewBox="'
    )
    assert alone.startswith(
        '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" class="chart"'
    )
    assert (
        '<title id="name-title">A &#34;title&#34;</title><desc id="name-desc">1 &lt; 2</desc>'
        in alone
    )
    assert inline.endswith("</svg>")
    assert inline.count("<svg") == inline.count("</svg>") == 1

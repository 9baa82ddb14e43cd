"""Results of the items of `reproduce` in a quick run, each run once for all tests."""

from __future__ import annotations

from functools import cache

from metricshuffle.report.charts.vega import svg
from metricshuffle_papers.reproduction import Item, Reproduction, Row, Settings, items


def items_of(paper: str) -> dict[str, Item]:
    return {name: item for name, item in items().items() if item.paper == paper}


@cache
def found(name: str) -> Reproduction:
    return items()[name].run(Settings(quick=True))


def rows_of(name: str, part: str) -> list[Row]:
    chosen = [row for row in found(name).rows if part in row.label]
    assert chosen
    return chosen


def one_row(name: str, part: str) -> Row:
    (row,) = rows_of(name, part)
    return row


def check_charts(name: str) -> None:
    """Check that every chart of the item can be drawn, shows data, and loads nothing."""
    for index, chart in enumerate(found(name).charts):
        drawn = svg(chart.specification, f"{name}-{index}", chart.title, chart.caption)
        assert drawn.count("<path") > 2
        assert "http" not in drawn.replace("http://www.w3.org", "")
        assert "NaN" not in drawn

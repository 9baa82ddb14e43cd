"""index.html of `metricshuffle reproduce all`: every item with its chart and its table, offline."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metricshuffle.citations import PAPERS
from metricshuffle.report.charts.vega import drawing
from metricshuffle.report.components import Figure
from metricshuffle.report.template_engine import rendered_from
from metricshuffle_papers.reproduction import NOT_AT_HAND, RULE, Item, Reproduction, Row, Settings

MEANINGS = {
    "reproduced": "the paper's own method gives the printed number",
    "not reproduced": "it gives another one",
    "impossible": "no mechanism with the promised privacy can have it; the bound is beside it",
    "true": "a published formula that holds",
    "loose": "holds, and promises less than is true",
    "false": "a published formula that does not hold; the counterexample is beside it",
    "ours": "nothing was printed to compare with",
}
MARKS = {
    "reproduced": "=",
    "not reproduced": "\N{NOT EQUAL TO}",
    "impossible": "!",
    "true": "\N{CHECK MARK}",
    "loose": "\N{ALMOST EQUAL TO}",
    "false": "\N{MULTIPLICATION SIGN}",
    "ours": "\N{MIDDLE DOT}",
}
"""Symbols next to the words, so that verdicts differ without colours (templates/style.css)."""
BAD = ("impossible", "false", "not reproduced")
"""Verdicts from the worst on."""
NUMBERS = ("published", "as published formula", "ours", "ratio")
# More rows without anything to compare with are folded away.
FEW = 8


@dataclass(frozen=True)
class ShownVerdict:
    words: str

    @property
    def kind(self) -> str:
        """Class in the style sheet."""
        return self.words.replace(" ", "-")

    @property
    def mark(self) -> str:
        return MARKS[self.words]


@dataclass(frozen=True)
class Count:
    """Number of rows with a verdict, and its meaning."""

    rows: int
    verdict: ShownVerdict
    meaning: str


@dataclass(frozen=True)
class ShownNumber:
    column: str
    text: str
    standard_error: str = ""


@dataclass(frozen=True)
class ShownRow:
    label: str
    numbers: tuple[ShownNumber, ...]
    verdict: ShownVerdict
    note: str


@dataclass(frozen=True)
class HeadCell:
    name: str
    numeric: bool = False


@dataclass(frozen=True)
class Comparison:
    """Table of the published numbers and ours; empty columns are left out."""

    head: tuple[HeadCell, ...]
    rows: tuple[ShownRow, ...]


@dataclass(frozen=True)
class ShownItem:
    """Item with its result, or the reason why there is none."""

    name: str
    label: str
    title: str
    missing_because: str = ""
    words: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    judged: Comparison | None = None
    ours: Comparison | None = None
    worst: ShownVerdict | None = None

    @property
    def fold_ours(self) -> bool:
        return self.ours is not None and len(self.ours.rows) > FEW


@dataclass(frozen=True)
class ShownPaper:
    name: str
    reference: str
    short: str
    not_at_hand: str
    items: tuple[ShownItem, ...]


def page(
    items: Sequence[Item],
    reproductions: Mapping[str, Reproduction],
    failed: Mapping[str, str],
    settings: Settings,
) -> str:
    """Return the whole page; items that failed or were not reached are marked."""
    rows_with: Counter[str] = Counter(
        row.verdict for reproduction in reproductions.values() for row in reproduction.rows
    )
    how = "fewer runs and sizes (--quick)" if settings.quick else "all runs and sizes"
    if settings.runs is not None:
        how = f"{how}, {settings.runs:,} runs a simulation"

    def shown_item(item: Item) -> ShownItem:
        if item.name in reproductions:
            return _shown_item(item, reproductions[item.name])
        return ShownItem(
            item.name, item.label, item.title, missing_because=failed.get(item.name, "not reached")
        )

    papers = [
        ShownPaper(
            paper,
            PAPERS[paper],
            _short(paper),
            NOT_AT_HAND.get(paper, ""),
            tuple(shown_item(item) for item in items if item.paper == paper),
        )
        for paper in dict.fromkeys(item.paper for item in items)
    ]
    return rendered_from(
        "metricshuffle_papers.pages",
        "reproduction.html.jinja",
        how=how,
        seed=settings.seed,
        counts=[
            Count(rows_with[name], ShownVerdict(name), meaning)
            for name, meaning in MEANINGS.items()
            if rows_with[name]
        ],
        failed=failed,
        not_reached=len(items) - len(reproductions) - len(failed),
        rule=RULE,
        papers=papers,
    )


def shown(value: float | None, *, digits: int = 4) -> str:
    """Format a number for a table."""
    if value is None:
        return ""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if 10**digits <= abs(rounded) < 1e9 else f"{value:,.{digits}g}"


def _short(paper: str) -> str:
    """Short name of a paper: Wang 2024."""
    years = re.findall(r"\b(?:19|20)\d{2}\b", PAPERS[paper])
    return " ".join((paper.rstrip("0123456789"), *years[-1:]))


def _shown_item(item: Item, reproduction: Reproduction) -> ShownItem:
    verdicts = {row.verdict for row in reproduction.rows}
    return ShownItem(
        name=item.name,
        label=item.label,
        title=item.title,
        words=reproduction.words,
        figures=tuple(
            Figure(
                drawing(chart.specification, f"{item.name}-{index}", chart.title, chart.caption),
                chart.caption,
            )
            for index, chart in enumerate(reproduction.charts)
        ),
        judged=_comparison([row for row in reproduction.rows if row.verdict != "ours"]),
        ours=_comparison([row for row in reproduction.rows if row.verdict == "ours"]),
        worst=next((ShownVerdict(verdict) for verdict in BAD if verdict in verdicts), None),
    )


def _comparison(rows: Sequence[Row]) -> Comparison | None:
    if not rows:
        return None
    numbers = [_numbers(row) for row in rows]
    used = [
        column
        for column, cells in enumerate(zip(*numbers, strict=True))
        if any(cell.text for cell in cells)
    ]
    head = (
        HeadCell(""),
        *(HeadCell(NUMBERS[column], numeric=True) for column in used),
        HeadCell("verdict"),
        HeadCell("why"),
    )
    body = tuple(
        ShownRow(
            row.label, tuple(cells[column] for column in used), ShownVerdict(row.verdict), row.note
        )
        for row, cells in zip(rows, numbers, strict=True)
    )
    return Comparison(head, body)


def _numbers(row: Row) -> tuple[ShownNumber, ...]:
    """Numbers of a row, in the order of NUMBERS."""
    texts = (
        shown(row.published, digits=6),
        shown(row.as_published),
        shown(row.ours),
        shown(row.ratio, digits=3),
    )
    errors = ("", "", shown(row.standard_error, digits=2), "")
    return tuple(ShownNumber(*cell) for cell in zip(NUMBERS, texts, errors, strict=True))

"""What pages are made of, as plain data: templates/macros.html.jinja writes each of these."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from metricshuffle.pages.charts.marks import Drawing


@dataclass(frozen=True)
class Table:
    """Cells of text; the columns in `numeric` are set flush right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Collection[int] = ()
    classes: Sequence[str] = ()
    """One for each row, if any row has one."""
    caption: str = ""


@dataclass(frozen=True)
class Key:
    """A line of a legend: what is drawn in that colour, as a solid or dashed line or as a ring."""

    words: str
    colour: str
    dash: str = ""
    ring: bool = False


@dataclass(frozen=True)
class Figure:
    """A chart with its caption."""

    drawing: Drawing
    caption: str
    legend: Sequence[Key] = ()


@dataclass(frozen=True)
class Promise:
    """What holds in a case; `broken` if it is less than was hoped for."""

    case: str
    words: str
    broken: bool = False


@dataclass(frozen=True)
class Card:
    """A release at a glance."""

    title: str
    answer: str
    unit: str
    caption: str
    facts: Sequence[tuple[str, str]]
    promises: Sequence[Promise]
    asked: str = ""
    pair: bool = False
    """The answer is two numbers and must be set smaller."""

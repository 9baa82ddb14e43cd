"""What pages are made of, as plain data: templates/macros.html.jinja writes each of these."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from metricshuffle.report.charts.vega import Drawing

Shape = Literal["circle", "diamond", "triangle-up", "square"]
"""As Vega calls them."""


@dataclass(frozen=True)
class Table:
    """Cells of text; the columns in `numeric` are set flush right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Collection[int] = ()
    classes: Sequence[str] = ()
    """One for each row, if any row has one."""
    caption: str = ""

    @property
    def stacks(self) -> bool:
        """Whether its rows are read one by one and become cards on telephones; rows of numbers are compared, and stay rows."""
        return len(self.head) - len(set(self.numeric)) > 1 and len(self.head) > 2


@dataclass(frozen=True)
class Key:
    """A line of a legend: what is drawn in that colour, as a solid or dashed line, as a ring, or as a filled shape."""

    words: str
    colour: str
    dash: str = ""
    ring: bool = False
    shape: Shape | None = None


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
class BigNumber:
    """A number that a reader takes away, with what it is above it and what belongs to it below: an epsilon never stands alone."""

    label: str
    number: str
    beside: str
    unit: str = ""
    words: bool = False
    """There is no number, but words in its place, which are set smaller."""
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

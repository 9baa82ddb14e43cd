"""Elements of pages as plain data; templates/macros.html.jinja renders them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from metricshuffle.report.charts.vega import Drawing

Shape = Literal["circle", "diamond", "triangle-up", "square"]
"""Symbols, named as in Vega."""


@dataclass(frozen=True)
class TextTable:
    """A table of text cells; the columns in `numeric` are right-aligned."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Collection[int] = ()
    classes: Sequence[str] = ()
    """CSS class of each row; empty if no row has one."""
    caption: str = ""

    @property
    def stacks(self) -> bool:
        """Whether rows become cards on phones; rows of numbers stay rows, to be compared."""
        return len(self.head) - len(set(self.numeric)) > 1 and len(self.head) > 2


@dataclass(frozen=True)
class Key:
    """A legend entry: its text, its colour, and a line, dashed line, ring or filled shape."""

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
class GuaranteeLine:
    """A guarantee and the case in which it holds; `broken` marks one weaker than planned."""

    case: str
    words: str
    broken: bool = False


@dataclass(frozen=True)
class BigNumber:
    """A key number with its label and conditions: an epsilon is never shown alone."""

    label: str
    number: str
    beside: str
    unit: str = ""
    words: bool = False
    """Whether `number` is a text, which is set smaller."""
    broken: bool = False


@dataclass(frozen=True)
class Card:
    """Summary of a release."""

    title: str
    answer: str
    unit: str
    caption: str
    facts: Sequence[tuple[str, str]]
    promises: Sequence[GuaranteeLine]
    asked: str = ""
    """The query in words; empty if it is not shown."""
    pair: bool = False
    """Whether the answer is two numbers, which are set smaller."""

"""Damage: how far participants who lie can move an answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from metricshuffle.errors import InputError, argument
from metricshuffle.models import format_value
from metricshuffle.numerics.rounding import format_epsilon, format_rough, round_up
from metricshuffle.queries.query import Query

Liars = int | float | str
"""Number of participants who lie: a count, a fraction, or text like 1%."""
Limit = float | str
"""Largest damage, in the query's unit of errors; of shares a fraction, or text like 1%."""
NO_LIMIT_TEXT = "no limit"


@dataclass(frozen=True)
class Damage:
    """How far one participant who lies can move the answer, in the query's unit of errors.

    A participant who lies sends any report that is counted in place of the one that the protocol
    makes of their value; all other reports stay as they are. A table moves by the largest change of
    one of its numbers (shares of users' items: by the earth mover's distance). Without
    a limit, `one` has no number. A number that is not `certified` is about what one attack reaches;
    other attacks may exceed it.
    """

    one: float | None
    certified: bool

    def __post_init__(self) -> None:
        if self.one is not None and not 0.0 <= self.one < math.inf:
            raise InputError(f"damage must be a finite number >= 0 or None, got {self.one!r}.")

    def of(self, liars: int) -> float | None:
        """Damage of several participants who lie together; None if there is no limit.

        Statement: m liars move the answer at most m times as far as one.
        Proof: replace their reports one after another; each replacement changes the answer by at
        most `one`, whatever the other reports are. QED
        """
        if isinstance(liars, bool) or not isinstance(liars, int) or liars < 0:
            raise InputError(f"{argument('liars')} must be a whole number >= 0, got {liars!r}.")
        if liars == 0:
            return 0.0
        return None if self.one is None else round_up(liars * self.one, 2)

    def keeps(self, limit: float, liars: int = 1) -> bool:
        """Whether this many liars certainly move the answer by no more than the limit."""
        moved = self.of(liars)
        return moved is not None and self.certified and moved <= limit * (1.0 + 1e-12)

    @property
    def sort_key(self) -> float:
        """Number by which damages are sorted: no limit is the largest."""
        return math.inf if self.one is None else self.one

    def text(self, query: Query, liars: int = 1) -> str:
        """Format the damage with its unit, rounded up; in words if there is no limit."""
        moved = self.of(liars)
        if moved is None:
            return NO_LIMIT_TEXT
        written = format_epsilon if self.certified else format_rough
        number = (
            f"{written(100.0 * moved)} %"
            if query.in_percent
            else f"{written(moved)} {query.error_unit}".rstrip()
        )
        return number if self.certified else f"about {number}"

    def sentence(self, query: Query, liars: int = 1) -> str:
        """Say how far liars can move the answer."""
        who = (
            "one participant who lies" if liars == 1 else f"{liars:,} participants who lie together"
        )
        if self.one is None:
            return f"Nothing limits how far {who} can move the answer."
        moves = f"{who[:1].upper()}{who[1:]} can move {_moved(query)} by"
        if self.certified:
            return f"{moves} at most {self.text(query, liars)}."
        return f"{moves} {self.text(query, liars)}; that is not certified."


NO_LIMIT = Damage(None, certified=False)


def liar_count(liars: Liars, people: int) -> int:
    """Number of liars: a count, or a fraction in (0, 1) or a percentage of people, rounded up."""
    number: object = liars
    if isinstance(liars, str):
        text = liars.strip()
        try:
            number = float(text[:-1]) / 100.0 if text.endswith("%") else int(text)
        except ValueError:
            number = None
    if isinstance(number, float) and 0.0 < number < 1.0:
        number = math.ceil(Fraction(f"{number:.15g}") * people)
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InputError(
            f"{argument('liars')} must be a whole number >= 1 or a percentage like 1%, got "
            f"{format_value(liars)}.",
            field="liars",
        )
    if number > people:
        written = f"{number:,}" if number < 10**15 else format_value(number)
        raise InputError(
            f"{argument('liars')} ({written}) cannot exceed the number of people ({people:,}); "
            "everybody would lie.",
            field="liars",
            remedy="Give fewer.",
        )
    return number


def damage_limit(limit: Limit, query: Query) -> float:
    """Largest damage in the query's unit of errors; a percentage of shares becomes a fraction."""
    in_percent = isinstance(query, Query) and query.in_percent
    number: object = limit
    if isinstance(limit, str):
        text = limit.strip().replace("_", "x")  # 1_000, which only Python accepts, is refused
        percentage = in_percent and text.endswith("%")
        try:
            number = float(text[:-1]) / 100.0 if percentage else float(text)
        except ValueError:
            number = None
    top = 1.0 if in_percent else math.inf
    valid = isinstance(number, int | float) and not isinstance(number, bool) and 0.0 < number <= top
    if isinstance(number, int | float) and valid and number < math.inf:
        return float(number)
    unit = "the unit of its error" if not isinstance(query, Query) else query.error_unit
    kinds = (
        "a finite number > 0 and at most 1, as a fraction, or a percentage like 1%"
        if in_percent
        else f"a finite number > 0, in {unit or 'the unit of the answer'}"
    )
    raise InputError(
        f"{argument('max_damage')} must be {kinds}, got {format_value(limit)}.", field="max_damage"
    )


def _moved(query: Query) -> str:
    """Name of what a liar moves, in words."""
    if query.items is not None and query.shared:
        return "the shares"
    return f"a {query.row_name}" if query.tabular else "the answer"

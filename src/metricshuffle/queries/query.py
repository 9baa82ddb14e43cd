"""What is asked: how values become whole numbers, and how an estimate becomes an answer. No query knows which protocol it gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.display import Brief
from metricshuffle.errors import InputError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import TaggedModel
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.guarantee import Items
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import Domain

Pair = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Inputs:
    """Validated values as whole numbers, a row each. `sizes` says how many rows each person holds; None: everybody holds one."""

    query: Query
    numbers: Integers64
    sizes: Integers64 | None = None

    @property
    def people(self) -> int:
        return len(self.numbers) if self.sizes is None else len(self.sizes)

    def parts(self, people: int) -> Iterator[Inputs]:
        """The same in parts of so many people."""
        ends = None if self.sizes is None else np.concatenate([[0], np.cumsum(self.sizes)])
        for start in range(0, self.people, people):
            stop = min(start + people, self.people)
            if ends is None or self.sizes is None:
                yield Inputs(self.query, self.numbers[start:stop])
            else:
                yield Inputs(self.query, self.numbers[ends[start] : ends[stop]], self.sizes[start:stop])


@dataclass(frozen=True, eq=False)
class NearbyShares(Brief):
    """The unbiased share around each cell, where people count the less the farther they are; how far that reaches, in words; and
    (low, high) of these shares for a level, one by one or all at once."""

    shares: Floats
    words: str
    ends: Callable[[float, bool], tuple[Floats, Floats]]


@dataclass(frozen=True, eq=False)
class Estimate(Brief):
    """Unbiased totals over the people who reported, their standard errors, and intervals for them.

    Totals are in whole steps of `step` units (numbers, places), or people (histograms), or shares of people (users' items). They count
    from `origin`, so that nothing is lost where a total has more digits than a double. Smoothed shares are biased: they have neither
    errors nor ends, but what each is at most and the shares nearby, unless values were randomized first.
    """

    totals: Floats
    errors: Floats | None
    people: int
    step: float
    ends: Callable[[float, bool, IntervalMethod], tuple[Floats, Floats]] | None
    possible: Floats | None = None
    """Shares that can be true (none negative, summing to one) near the unbiased ones; None where totals are no shares."""
    warning: str = ""
    origin: tuple[int, ...] = (0, 0)
    band: Callable[[float], tuple[Floats, Floats]] | None = None
    """On a line where that was measured: (low, high) of the shares of all up to each cell, which hold together with that probability."""
    at_most: Callable[[float, bool], Floats] | None = None
    """Of smoothed shares: what the share of each cell is at most, for a level; one by one or all at once."""
    nearby: NearbyShares | None = None

    @property
    def smoothed(self) -> bool:
        """Whether these are shares without intervals."""
        return self.ends is None

    @property
    def standard_errors(self) -> Floats:
        if self.errors is None:
            raise InputError(self.no_interval("standard error"))
        return self.errors

    def no_interval(self, name: str = "interval") -> str:
        """Why smoothed shares have none, and what to ask instead."""
        reason = f"These shares are smoothed: what was measured does not tell single cells apart, so they have no {name}"
        alternatives = [*(["release.at_most(0.95)"] if self.at_most else []), *(["release.nearby(0.95)"] if self.nearby else [])]
        return (
            f"{reason}; ask {' or '.join(alternatives)} instead."
            if alternatives
            else f"{reason}; values were also randomized before they were counted."
        )

    def interval(self, level: float = 0.95, *, simultaneous: bool = False, method: IntervalMethod = "normal") -> tuple[Floats, Floats]:
        """(low, high) of every total; `simultaneous`: all hold at once. "bernstein" holds for any number of reports and may be wider."""
        if not 0.0 < level < 1.0:
            raise InputError(f"level must lie strictly between 0 and 1, got {level!r}.")
        if method not in ("normal", "bernstein"):
            raise InputError(f"method must be 'normal' or 'bernstein', got {method!r}.")
        if self.ends is None:
            raise InputError(self.no_interval())
        return self.ends(level, simultaneous, method)


@dataclass(frozen=True)
class Answer(Brief):
    """What is published: a number, a pair or a table, with the error and an interval of the same shape.

    `plane`: for places in degrees, the same answer in units from the south-west corner of the grid. Smoothed shares have neither error
    nor interval, but what each is at most, and (low, high) of the share around it, a row each.
    """

    value: float | Pair | Table
    standard_error: float | Pair | Floats | None
    interval: Pair | tuple[Pair, Pair] | Floats | None
    plane: Answer | None = None
    at_most: Floats | None = None
    nearby: Floats | None = None


class Query(TaggedModel, ABC):
    """Base of the queries."""

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    kind: str
    options: ClassVar[frozenset[str]] = frozenset()
    """Which choices of a plan make sense for this query, beside those that all have."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of distances."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """Largest distance between what two people may hold, in units."""

    @property
    @abstractmethod
    def values_in(self) -> Domain:
        """Where one value lies."""

    @property
    def title(self) -> str:
        """What it is called where it is asked: on the command line and in sentences."""
        return self.kind

    def between(self, step: float) -> str:
        """What distances are measured between, and how, where that is not the difference of values; values are counted in such steps."""
        return "values"

    @property
    def items(self) -> Items | None:
        """How many values a person holds, for a guarantee; None if it is a single one."""
        return None

    @property
    def default_granularity(self) -> float:
        """What values are rounded to where nobody says."""
        return 1.0

    @property
    def shared(self) -> bool:
        """Whether the answer is a table of shares."""
        return False

    @property
    def measure(self) -> str:
        """What an expected error of this query is."""
        return "expected error"

    @property
    @abstractmethod
    def error_unit(self) -> str:
        """The unit of an expected error, or nothing."""

    @abstractmethod
    def check_distance(self, distance: float) -> None:
        """Raise unless a promise about that distance says something."""

    def check_units(self) -> None:
        """Raise if distances are said to be in another unit than values."""

    @abstractmethod
    def inputs(self, values: Any, step: float, *, clamp: bool = False) -> Inputs:
        """Validated values as whole steps of that size."""

    @abstractmethod
    def answer(self, estimate: Estimate, level: float = 0.95, *, simultaneous: bool = False, method: IntervalMethod = "normal") -> Answer:
        """The answer in the user's unit, degrees for places on a map, with its interval of that level."""

    def remarks(self) -> list[str]:
        """What a reader of the answer should know, in sentences."""
        return []

    @abstractmethod
    def __str__(self) -> str: ...


AnyQuery = Annotated[SerializeAsAny[Query], BeforeValidator(Query.of_kind)]
"""A field that holds any query and reads it back from JSON by its kind."""

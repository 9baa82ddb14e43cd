"""Queries: how values become whole numbers, and how an estimate becomes an answer.

No query depends on the protocol that answers it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import BeforeValidator, SerializeAsAny

from metricshuffle.display import Brief
from metricshuffle.errors import InputError, argument
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.models import TaggedModel
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.guarantee import Items
from metricshuffle.privacy.target import Target
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import Domain, Space

Pair = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Inputs:
    """Validated values as whole numbers, one row each.

    `sizes` is the number of rows of each person; None: one each.
    """

    query: Query
    numbers: Integers64
    sizes: Integers64 | None = None

    @property
    def people(self) -> int:
        return len(self.numbers) if self.sizes is None else len(self.sizes)

    def parts(self, people: int) -> Iterator[Inputs]:
        """Split into parts of `people` people each."""
        ends = None if self.sizes is None else np.concatenate([[0], np.cumsum(self.sizes)])
        for start in range(0, self.people, people):
            stop = min(start + people, self.people)
            if ends is None or self.sizes is None:
                yield Inputs(self.query, self.numbers[start:stop])
            else:
                yield Inputs(
                    self.query, self.numbers[ends[start] : ends[stop]], self.sizes[start:stop]
                )


@dataclass(frozen=True, eq=False)
class NearbyShares(Brief):
    """Unbiased shares of the surroundings of each cell, in which nearer people count more.

    `words` describes the extent; `ends` maps a level and whether all intervals are simultaneous to
    (low, high) of these shares.
    """

    shares: Floats
    words: str
    ends: Callable[[float, bool], tuple[Floats, Floats]]


@dataclass(frozen=True, eq=False)
class Estimate(Brief):
    """Unbiased totals over the people who reported, their standard errors, and intervals.

    Totals are in whole steps of `step` units (numbers, places), or people (histograms), or shares
    of people (users' items), or for a `LineQuery` the answers themselves, in units. They count from
    `origin`, so that totals with more digits than a double lose no digits. Smoothed shares are
    biased and have neither `errors` nor `ends`, but upper bounds (`at_most`) and shares nearby,
    unless values were randomized first. Quantiles have `ends` and no `errors`.
    """

    totals: Floats
    errors: Floats | None
    people: int
    step: float
    ends: Callable[[float, bool, IntervalMethod], tuple[Floats, Floats]] | None
    possible: Floats | None = None
    """Valid shares (>= 0, of sum one) near the unbiased ones; None if totals are not shares."""
    warning: str = ""
    origin: tuple[int, ...] = (0, 0)
    band: Callable[[float], tuple[Floats, Floats]] | None = None
    """(low, high) of the cumulative shares of a line, jointly at a level, if they were measured."""
    at_most: Callable[[float, bool], Floats] | None = None
    """Upper bounds on smoothed shares for a level, individually or simultaneously."""
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
        """Explain why smoothed shares have no interval, and what to use instead."""
        if not self.smoothed:
            return (
                f"This answer has intervals, by the exact law of the noise, and no {name}; ask "
                "release.interval(0.95) instead."
            )
        reason = (
            "These shares are smoothed: what was measured does not tell single cells apart, "
            f"so they have no {name}"
        )
        alternatives = [
            *(["release.at_most(0.95)"] if self.at_most else []),
            *(["release.nearby(0.95)"] if self.nearby else []),
        ]
        return (
            f"{reason}; ask {' or '.join(alternatives)} instead."
            if alternatives
            else f"{reason}; values were also randomized before they were counted."
        )

    def interval(
        self, level: float = 0.95, *, simultaneous: bool = False, method: IntervalMethod = "normal"
    ) -> tuple[Floats, Floats]:
        """(low, high) of every total at a confidence level; jointly for all if `simultaneous`.

        "bernstein" is valid for any number of reports and may be wider.
        """
        if not 0.0 < level < 1.0:
            raise InputError(
                f"{argument('level')} must lie strictly between 0 and 1, got {level!r}."
            )
        if method not in ("normal", "bernstein"):
            raise InputError(
                f"{argument('method')} must be 'normal' or 'bernstein', got {method!r}."
            )
        if self.ends is None:
            raise InputError(self.no_interval())
        return self.ends(level, simultaneous, method)


@dataclass(frozen=True)
class Answer(Brief):
    """A published answer (number, pair or table), with an error and interval of the same shape.

    `plane`: for places in degrees, the same answer in units from the south-west corner of the grid.
    Smoothed shares have neither error nor interval, but upper bounds, and (low, high) of the share
    nearby, one row each.
    """

    value: float | Pair | Table
    standard_error: float | Pair | Floats | None
    interval: Pair | tuple[Pair, Pair] | Floats | None
    plane: Answer | None = None
    at_most: Floats | None = None
    nearby: Floats | None = None


class Query(TaggedModel, ABC):
    """Base class of queries."""

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    kind: str
    options: ClassVar[frozenset[str]] = frozenset()
    """Plan options that apply to this query in addition to the common ones."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """Unit of distances."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """Largest distance between what two people may have, in units."""

    @property
    def farthest_move(self) -> str:
        """The change that the diameter measures, in words."""
        return "from one end of the range to the other"

    @property
    @abstractmethod
    def values_in(self) -> Domain:
        """Domain of a single value."""

    @property
    def points(self) -> Space | None:
        """Finite space of the points whose features are summed; None if values are summed."""
        return None

    @property
    def title(self) -> str:
        """Name of the query on the command line and in sentences."""
        return self.kind

    def between(self, step: float) -> str:
        """Describe what distances are measured between, for values counted in this step."""
        return "values"

    @property
    def items(self) -> Items | None:
        """Number of values of a person, for a guarantee; None for a single value."""
        return None

    @property
    def default_granularity(self) -> float:
        """Default unit that values are rounded to."""
        return 1.0

    @property
    def shared(self) -> bool:
        """Whether the answer is a table of shares."""
        return False

    @property
    def measure(self) -> str:
        """Description of this query's expected error."""
        return "expected error"

    @property
    @abstractmethod
    def error_unit(self) -> str:
        """Unit of an expected error; may be empty."""

    @property
    def in_percent(self) -> bool:
        """Whether answers and errors are shares of people, which are printed in percent."""
        return self.error_unit.startswith("%")

    @property
    def simulated(self) -> bool:
        """Whether expected errors depend on the values and are simulated; those of shares do."""
        return self.shared

    @property
    def tabular(self) -> bool:
        """Whether the answer is a table."""
        return self.shared

    @property
    def row_name(self) -> str:
        """Name of a number in a table of answers."""
        return "share" if self.shared else "mean"

    @abstractmethod
    def check_distance(self, distance: float) -> None:
        """Raise unless a guarantee at this distance is meaningful."""

    def for_target(self, target: Target) -> Self:
        """Return the query as a plan for this target asks it; raise if the target does not fit."""
        if target.label_epsilon is not None:
            raise InputError(
                f"{argument('label_epsilon')} is for means by group: a {self.title} has no labels "
                "with numbers",
                remedy="leave it out.",
            )
        return self

    def covered(self, target: Target) -> Target:
        """Return the target at the largest distance that a guarantee covers, at the same slope."""
        return target

    def check_units(self) -> None:
        """Raise if the unit of distances differs from the unit of values."""

    @abstractmethod
    def inputs(self, values: Any, step: float, *, clamp: bool = False) -> Inputs:
        """Validate values and convert them to whole steps of this size."""

    @abstractmethod
    def answer(
        self,
        estimate: Estimate,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        method: IntervalMethod = "normal",
    ) -> Answer:
        """Convert an estimate to the user's unit, or degrees on a map, with its interval."""

    def remarks(self) -> list[str]:
        """Sentences that a reader of the answer should know."""
        return []

    @abstractmethod
    def __str__(self) -> str: ...


AnyQuery = Annotated[SerializeAsAny[Query], BeforeValidator(Query.of_kind)]
"""A field for any query, which is read back from JSON by its kind."""

"""Base of queries on records: each person has a row of numbers, a set, or keys with numbers."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.rounding import format_exact, format_number, shown_at_least
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.queries.query import Inputs, Query
from metricshuffle.spaces import Space


class RecordQuery(Query):
    """Base of means of columns, shares of labels in sets, and means by key.

    Inputs have one row for each person, of a fixed width.
    """

    @property
    @abstractmethod
    def points(self) -> Space:
        """All records, with the distance between two of them."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows of the answer."""

    @property
    @abstractmethod
    def smallest_move(self) -> float:
        """Smallest distance between two different records."""

    @property
    @abstractmethod
    def outcome(self) -> str:
        """Words for the answer in a sentence to participants."""

    @abstractmethod
    def within(self, distance: str) -> str:
        """Words for two answers that are at most this distance apart."""

    @abstractmethod
    def true_totals(self, numbers: Integers64) -> Floats:
        """The totals of an estimate without noise, for these inputs."""

    @abstractmethod
    def even_inputs(self, people: int, generator: np.random.Generator) -> Inputs:
        """Inputs of people for a simulation: numbers and labels are spread evenly."""

    def between_inputs(self, first: Integers64, second: Integers64) -> Floats:
        """Distances between rows of inputs: one row for each of `first`."""
        return self.points.metric.pairwise(first, second)

    @property
    def tabular(self) -> bool:
        return True

    def check_distance(self, distance: float) -> None:
        smallest, largest = shown_at_least(self.smallest_move), shown_at_least(self.diameter)
        if not self.smallest_move * (1.0 - 1e-12) <= distance <= largest * (1.0 + 1e-12):
            unit = f" {self.unit}" if self.unit else ""
            raise InputError(
                f"{argument('distance')} must lie between the smallest change, "
                f"{format_number(smallest)}{_counted(unit, smallest)}, and "
                f"{format_number(largest)}{_counted(unit, largest)}, {self.farthest_move}; got "
                f"{format_exact(distance)}{_counted(unit, distance)}."
            )


def _counted(unit: str, number: float) -> str:
    """The unit after a number: one label, two labels."""
    return " label" if unit == " labels" and number == 1.0 else unit


def interval_pairs(low: Floats, high: Floats) -> list[tuple[float, ...]]:
    """Rows of (low, high) for a table."""
    return [tuple(row) for row in np.column_stack([low, high]).tolist()]


def even_labels(people: int, labels: int, size: int, generator: np.random.Generator) -> Integers64:
    """Sets of `size` of the labels, sorted: a random one and those that follow it in a circle."""
    first = generator.integers(0, labels, (people, 1))
    return np.sort((first + np.arange(size)) % labels, axis=1)

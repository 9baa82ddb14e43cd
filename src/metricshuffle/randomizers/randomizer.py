"""What every local randomizer offers: its exact law, what one report hides, the blanket of a pair, a sampler and an estimator.

Inputs are coded 0 .. inputs-1 and reports 0 .. outputs-1, so that laws are rows of a matrix. A randomizer whose inputs
or reports are sets, vectors or real numbers says with `values_of` and `codes_of` which code stands for what.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.errors import DomainError, InputError, NotCertified
from metricshuffle.models import TaggedModel, format_value
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.privacy.profile import PrivacyProfile, checked_epsilon, validate_distance
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Domain

Codes = Integers64
Pair = tuple[int, int]

LARGEST_MATRIX = 2**24
"""Entries of the matrix of all laws; beyond it only the closed forms answer."""
CHUNK = 2**14


@dataclass(frozen=True)
class FittedFamily:
    """The members of a kind that fit a domain, for a histogram over it.

    `member` makes one from its strength: the local epsilon of any two values, or, if the kind has a metric, the rate per unit
    of it. `in_steps`: that metric counts cells, and not the units of the domain.
    """

    member: Callable[[float], Randomizer]
    in_steps: bool = True

    def __call__(self, strength: float) -> Randomizer:
        return self.member(strength)


class Randomizer(TaggedModel, ABC):
    """The law of one report about one value. All probabilities are those of the sampler, not those of an ideal it approximates.

    A class of your own gives `inputs`, `outputs`, `rows`, `reports`, `targets` and `debiasing`; the rest follows from the
    rows. Closed forms are overridden where they are known. Run `metricshuffle.testing.check_randomizer` on it.
    """

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    keeps_law: ClassVar[bool] = False
    """True in the body of a class that extends another randomizer and changes nothing of its law, distances and estimates.

    Closed forms of the class it extends are then used for it (`has_law_of`); `check_randomizer` compares them. It is not inherited: a
    class that extends this one says it again.
    """

    def __eq__(self, other: object) -> bool:  # tables among the parameters have no equality of their own
        return isinstance(other, Randomizer) and type(other) is type(self) and self.model_dump_json() == other.model_dump_json()

    def __hash__(self) -> int:
        return hash((type(self).__qualname__, self.model_dump_json()))

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """The members whose reports tell the shares of `cells` values of a domain; None if this kind is not for that."""
        return None

    @property
    @abstractmethod
    def inputs(self) -> int:
        """How many different inputs there are."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many different reports there are."""

    @abstractmethod
    def rows(self) -> Floats:
        """The matrix of all laws: rows()[x, y] is the probability that input x is reported as y."""

    @abstractmethod
    def reports(self, values: Any, randomness: Randomness) -> NDArray[Any]:
        """One report per value."""

    @abstractmethod
    def targets(self) -> Floats:
        """What is estimated, as a row per input: indicators of the inputs, members of a set, or the value itself."""

    @abstractmethod
    def debiasing(self) -> Floats:
        """A row per report such that rows() @ debiasing() = targets(): the mean of a report's row is the target of its input."""

    def values_of(self, codes: Codes) -> Any:
        """Inputs as the sampler takes them."""
        return codes

    def codes_of(self, reports: Any) -> NDArray[Any]:
        """Reports as whole numbers 0 .. outputs-1."""
        codes = np.asarray(reports)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise DomainError(f"reports must be a one-dimensional array of whole numbers, got {codes.dtype} of shape {codes.shape}.")
        return codes

    def law(self, value: int) -> Floats:
        """The probabilities of the reports of one input."""
        row: Floats = self.rows()[self._checked_input(value)]
        return row

    def distance(self, a: int, b: int) -> float:
        """How far apart two inputs are; 1 for different ones unless the randomizer has a metric."""
        return float(a != b)

    @property
    def diameter(self) -> float:
        """How far apart two inputs can be; a closed form where there are many pairs."""
        if type(self).distance is Randomizer.distance:
            return 1.0
        return max((self.distance(*pair) for pair in self.pairs()), default=0.0)

    def pairs(self) -> Iterable[Pair]:
        """Ordered pairs of inputs such that every other pair has the same laws as one of them, up to renaming reports."""
        return itertools.permutations(range(self.inputs), 2)

    def blanket(self, a: int, b: int) -> BlanketLaw:
        """The pair (a, b) as atoms over the largest law that every input's report contains."""
        self._checked_pair(a, b)
        return BlanketLaw.from_rows(self.rows(), a, b)

    def pairs_within(self, distance: float) -> list[Pair]:
        """Pairs of inputs that stand for all pairs at most `distance` apart; 3 * 0.1, a float above 0.3, is within 0.3."""
        reach = validate_distance(distance) * (1.0 + 1e-12)
        return [pair for pair in self.pairs() if self.distance(*pair) <= reach]

    def blankets(self, distance: float = math.inf) -> list[BlanketLaw]:
        """The laws that bound every pair of inputs at most `distance` apart: what a `BlanketProfile` of shuffled reports takes."""
        pairs = self.pairs() if distance == math.inf else self.pairs_within(distance)
        return [self.blanket(*pair) for pair in pairs]

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """What one report gives away about a pair (or about the worst pair): max |log K_a/K_b|, rounded up; inf if it gives all."""
        if a is not None and b is not None:
            law = self.blanket(a, b)
            return max(law.pure, law.reversed.pure)
        return max((self.local_epsilon(*pair) for pair in self.pairs()), default=0.0)

    def local_delta(self, a: int, b: int, epsilon: float) -> float:
        """sum (K_a - e^epsilon K_b)_+ or the same with a and b exchanged, whichever is larger, rounded up."""
        law, epsilon = self.blanket(a, b), checked_epsilon(epsilon)
        return max((direction.atoms(epsilon).local for direction in (law, law.reversed) if epsilon < direction.pure), default=0.0)

    def total_variation(self, a: int, b: int) -> float:
        """sum (K_a - K_b)_+, the advantage of guessing between a and b from one report."""
        return math.fsum(np.maximum(self.blanket(a, b).excess, 0.0))

    def local_profile(self) -> PrivacyProfile:
        """What one report hides from everybody, shuffler included."""
        return LocalProfile(self)

    def variances(self) -> Floats:
        """Variance of one report's row of `debiasing`, per input and target: the variance of an estimated total adds these up."""
        debiasing, targets = self.debiasing(), self.targets()
        spread: Floats = self.rows() @ debiasing**2 - targets**2
        return np.maximum(spread, 0.0)

    def counts(self, reports: Any) -> Codes:
        """How often each report occurs."""
        return counted(self.codes_of(reports), self.outputs)

    def totals(self, reports: Any) -> Floats:
        """Unbiased estimates of the targets, added up over everybody who reported."""
        totals: Floats = self.counts(reports) @ self.debiasing()
        return totals

    def _checked_input(self, value: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < self.inputs:
            raise InputError(f"inputs of {type(self).__name__} are coded 0..{self.inputs - 1}, got {format_value(value)}.")
        return int(value)

    def _checked_pair(self, a: int, b: int) -> None:
        if self._checked_input(a) == self._checked_input(b):
            raise InputError(f"a pair of inputs must differ, got {a} twice: nothing distinguishes an input from itself.")

    def _listable(self) -> None:
        if self.inputs * self.outputs > LARGEST_MATRIX:
            raise NotCertified(
                f"the matrix of {type(self).__name__} has {self.inputs:,} x {self.outputs:,} entries, more than 2^24; "
                "use law, blanket and the other closed forms, or a smaller instance."
            )


Kind = TypeVar("Kind", bound=Randomizer)


def has_law_of(randomizer: object, kind: type[Kind]) -> TypeGuard[Kind]:
    """Whether what is known about `kind` holds for this randomizer: it is of that very class, or all classes in between keep its law.

    A class that extends another one may have any law, so `isinstance` is not enough. What an instance was changed into afterwards is
    not looked at.
    """
    classes = type(randomizer).__mro__
    return kind in classes and all(vars(own).get("keeps_law") is True for own in classes[: classes.index(kind)])


def counted(codes: NDArray[Any], size: int) -> Codes:
    """Occurrences of 0 .. size-1; a code outside is refused."""
    from metricshuffle.randomizers import _channel_kernels as kernels

    tables = np.zeros((4, size), dtype=np.int64)
    for start in range(0, len(codes), CHUNK):
        bad_index = int(kernels.count_into(codes[start : start + CHUNK].astype(np.int64, order="C"), tables))
        if bad_index >= 0:
            row = start + bad_index
            raise DomainError(f"report {row} (counting from 0) is {codes[row]}, but reports are whole numbers from 0 to {size - 1:,}.")
    counts: Codes = tables.sum(axis=0)
    return counts


def code_values(values: Any, size: int) -> NDArray[Any]:
    """Input codes as a one-dimensional array of integers, every one of them inside 0 .. size-1."""
    codes = np.asarray(values)
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise DomainError(f"values must be a one-dimensional array of whole numbers, got {codes.dtype} of shape {codes.shape}.")
    # One pass: a negative number is a large unsigned one.
    if codes.size and not int(codes.view(f"u{codes.dtype.itemsize}").max()) < size:
        row = int(np.argmax((codes < 0) | (codes >= size)))
        raise DomainError(
            f"row {row} (counting from 0) holds {codes[row]}, but values are whole numbers from 0 to {size - 1:,}; correct it."
        )
    return codes


def smallest_type(size: int) -> np.dtype[Any]:
    """The smallest unsigned type that holds 0 .. size-1: for many reports, memory is what takes the time."""
    return np.min_scalar_type(size - 1)


@dataclass(frozen=True)
class LocalProfile(PrivacyProfile):
    """What one report of a randomizer hides, pair by pair, over `randomizer.pairs()`.

    Statement: delta(epsilon, d) = max over pairs at distance <= d of sum_y (K_a(y) - e^epsilon K_b(y))_+.
    Numerics: each sum is rounded up; 0 from the largest log ratio on.
    """

    randomizer: Randomizer
    bound: str = "exact"

    def pure(self, distance: float) -> float:
        return max((self.randomizer.local_epsilon(*pair) for pair in self.randomizer.pairs_within(distance)), default=0.0)

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon, pairs = checked_epsilon(epsilon), self.randomizer.pairs_within(distance)
        return min(1.0, max((self.randomizer.local_delta(a, b, epsilon) for a, b in pairs), default=0.0))

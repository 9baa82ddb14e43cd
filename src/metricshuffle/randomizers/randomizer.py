"""The base class of local randomizers: exact law, local guarantee, blankets, sampler and estimator.

Inputs are coded 0 .. inputs-1 and reports 0 .. outputs-1, so that laws are rows of a matrix. A
randomizer whose inputs or reports are sets, vectors or real numbers maps them to codes with
`values_of` and `codes_of`.
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
"""Maximum number of entries of the matrix of all laws; larger randomizers need closed forms."""
CHUNK = 2**14


@dataclass(frozen=True)
class FittedFamily:
    """The members of a kind of randomizer that fit a domain, for a histogram over it.

    `member` makes a randomizer from its strength: the local epsilon of any two values or, if the
    kind has a metric, the rate per unit of distance. `in_steps` is true if that metric counts cells
    instead of units of the domain.
    """

    member: Callable[[float], Randomizer]
    in_steps: bool = True

    def __call__(self, strength: float) -> Randomizer:
        return self.member(strength)


class Randomizer(TaggedModel, ABC):
    """Base class of local randomizers: the law of one report about one value.

    All probabilities are those of the sampler, not those of an ideal law that it approximates.

    A subclass defines `inputs`, `outputs`, `rows`, `reports`, `targets` and `debiasing`; everything
    else follows from the rows. Override methods for which a closed form is known. Test the subclass
    with `metricshuffle.testing.check_randomizer`.
    """

    kinds: ClassVar[dict[str, type[TaggedModel]]] = {}
    keeps_law: ClassVar[bool] = False
    """True for a class that keeps law, distances and estimates of the class it extends.

    It must be set in the body of the class: it is not inherited, so a class that extends this one
    has to set it again. Closed forms of the extended class are then used for it (`has_law_of`);
    `check_randomizer` checks that they agree with its rows.
    """

    def __eq__(self, other: object) -> bool:
        # Arrays among the parameters have no boolean equality.
        return (
            isinstance(other, Randomizer)
            and type(other) is type(self)
            and self.model_dump_json() == other.model_dump_json()
        )

    def __hash__(self) -> int:
        return hash((type(self).__qualname__, self.model_dump_json()))

    @classmethod
    def fitted(cls, domain: Domain, cells: int) -> FittedFamily | None:
        """Return the members that estimate the shares of `cells` values of a domain.

        None if this kind of randomizer is not suitable.
        """
        return None

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Number of different inputs."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of different reports."""

    @abstractmethod
    def rows(self) -> Floats:
        """Return the matrix of all laws: rows()[x, y] = P(report y for input x)."""

    @abstractmethod
    def reports(self, values: Any, randomness: Randomness) -> NDArray[Any]:
        """Draw one report per value."""

    @abstractmethod
    def targets(self) -> Floats:
        """Return the estimated quantities, one row per input.

        They are indicators of the inputs, members of a set, or the value itself.
        """

    @abstractmethod
    def debiasing(self) -> Floats:
        """Return a row per report with rows() @ debiasing() = targets().

        The mean of a report's row is the target of its input.
        """

    def values_of(self, codes: Codes) -> Any:
        """Return the inputs with these codes, in the form that `reports` takes."""
        return codes

    def codes_of(self, reports: Any) -> NDArray[Any]:
        """Return the codes of reports: whole numbers 0 .. outputs-1."""
        codes = np.asarray(reports)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise DomainError(
                "reports must be a one-dimensional array of whole numbers, got "
                f"{codes.dtype} of shape {codes.shape}."
            )
        return codes

    def law(self, value: int) -> Floats:
        """Return the probabilities of the reports of one input."""
        row: Floats = self.rows()[self._checked_input(value)]
        return row

    def distance(self, a: int, b: int) -> float:
        """Return the distance of two inputs; without a metric, 1 if they differ and 0 otherwise."""
        return float(a != b)

    @property
    def diameter(self) -> float:
        """The largest distance of two inputs.

        Override it with a closed form if there are many pairs.
        """
        if type(self).distance is Randomizer.distance:
            return 1.0
        return max((self.distance(*pair) for pair in self.pairs()), default=0.0)

    def pairs(self) -> Iterable[Pair]:
        """Return ordered pairs of inputs that represent all pairs.

        Every other pair has the same laws as one of them, up to renaming reports.
        """
        return itertools.permutations(range(self.inputs), 2)

    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Return the pair (a, b) as atoms over the largest law contained in every input's law."""
        self._checked_pair(a, b)
        return BlanketLaw.from_rows(self.rows(), a, b)

    def pairs_within(self, distance: float) -> list[Pair]:
        """Return pairs of inputs that represent all pairs at most `distance` apart.

        Rounding is tolerated: 3 * 0.1, a float above 0.3, is within 0.3.
        """
        reach = validate_distance(distance) * (1.0 + 1e-12)
        return [pair for pair in self.pairs() if self.distance(*pair) <= reach]

    def blankets(self, distance: float = math.inf) -> list[BlanketLaw]:
        """Return the laws that bound every pair of inputs at most `distance` apart.

        A `BlanketProfile` of shuffled reports takes them.
        """
        pairs = self.pairs() if distance == math.inf else self.pairs_within(distance)
        return [self.blanket(*pair) for pair in pairs]

    def local_epsilon(self, a: int | None = None, b: int | None = None) -> float:
        """Return max |log K_a/K_b| of a pair, or of the worst pair, rounded up.

        It is inf if some report is possible for only one of the two inputs.
        """
        if a is not None and b is not None:
            law = self.blanket(a, b)
            return max(law.pure, law.reversed.pure)
        return max((self.local_epsilon(*pair) for pair in self.pairs()), default=0.0)

    def local_delta(self, a: int, b: int, epsilon: float) -> float:
        """Return max of sum (K_a - e^epsilon K_b)_+ and sum (K_b - e^epsilon K_a)_+, rounded up."""
        law = self.blanket(a, b)
        epsilon = checked_epsilon(epsilon)
        return max(
            (
                direction.atoms(epsilon).local
                for direction in (law, law.reversed)
                if epsilon < direction.pure
            ),
            default=0.0,
        )

    def total_variation(self, a: int, b: int) -> float:
        """Return sum (K_a - K_b)_+, the advantage of guessing between a and b from one report."""
        return math.fsum(np.maximum(self.blanket(a, b).excess, 0.0))

    def local_profile(self) -> PrivacyProfile:
        """Return the privacy profile of one report, seen by anyone including the shuffler."""
        return LocalProfile(self)

    def variances(self) -> Floats:
        """Return the variance of one report's row of `debiasing`, per input and target.

        Summed over people, it is the variance of an estimated total.
        """
        debiasing = self.debiasing()
        targets = self.targets()
        spread: Floats = self.rows() @ debiasing**2 - targets**2
        return np.maximum(spread, 0.0)

    def counts(self, reports: Any) -> Codes:
        """Count how often each report occurs."""
        return counted(self.codes_of(reports), self.outputs)

    def totals(self, reports: Any) -> Floats:
        """Return unbiased estimates of the targets, summed over everyone who reported."""
        totals: Floats = self.counts(reports) @ self.debiasing()
        return totals

    def _checked_input(self, value: int) -> int:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | np.integer)
            or not 0 <= value < self.inputs
        ):
            raise InputError(
                f"inputs of {type(self).__name__} are coded 0..{self.inputs - 1}, got "
                f"{format_value(value)}."
            )
        return int(value)

    def _checked_pair(self, a: int, b: int) -> None:
        if self._checked_input(a) == self._checked_input(b):
            raise InputError(
                f"a pair of inputs must differ, got {a} twice: nothing distinguishes an "
                "input from itself."
            )

    def _listable(self) -> None:
        if self.inputs * self.outputs > LARGEST_MATRIX:
            raise NotCertified(
                f"the matrix of {type(self).__name__} has {self.inputs:,} x "
                f"{self.outputs:,} entries, more than 2^24; "
                "use law, blanket and the other closed forms, or a smaller instance."
            )


Kind = TypeVar("Kind", bound=Randomizer)


def has_law_of(randomizer: object, kind: type[Kind]) -> TypeGuard[Kind]:
    """Return whether results about `kind` hold for this randomizer.

    They hold if the randomizer is an instance of that very class, or if its class and all classes
    in between set `keeps_law`. A subclass may have any law, so `isinstance` is not enough. Changes
    made to an instance after its construction are not detected.
    """
    classes = type(randomizer).__mro__
    return kind in classes and all(
        vars(own).get("keeps_law") is True for own in classes[: classes.index(kind)]
    )


def counted(codes: NDArray[Any], size: int) -> Codes:
    """Count the occurrences of 0 .. size-1; raise for a code outside."""
    from metricshuffle.randomizers import _channel_kernels as kernels

    tables = np.zeros((4, size), dtype=np.int64)
    for start in range(0, len(codes), CHUNK):
        bad_index = int(
            kernels.count_into(codes[start : start + CHUNK].astype(np.int64, order="C"), tables)
        )
        if bad_index >= 0:
            row = start + bad_index
            raise DomainError(
                f"report {row} (counting from 0) is {codes[row]}, but reports are whole "
                f"numbers from 0 to {size - 1:,}."
            )
    counts: Codes = tables.sum(axis=0)
    return counts


def code_values(values: object, size: int) -> NDArray[Any]:
    """Return input codes as a one-dimensional array of integers in 0 .. size-1, or raise."""
    codes = np.asarray(values)
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise DomainError(
            f"values must be a one-dimensional array of whole numbers, got {codes.dtype} "
            f"of shape {codes.shape}."
        )
    # One pass: negative numbers become large unsigned ones.
    if codes.size and not int(codes.view(f"u{codes.dtype.itemsize}").max()) < size:
        row = int(np.argmax((codes < 0) | (codes >= size)))
        raise DomainError(
            f"row {row} (counting from 0) holds {codes[row]}, but values are whole numbers "
            f"from 0 to {size - 1:,}; correct it."
        )
    return codes


def smallest_type(size: int) -> np.dtype[Any]:
    """Return the smallest unsigned type for 0 .. size-1.

    With many reports, memory dominates the time.
    """
    return np.min_scalar_type(size - 1)


@dataclass(frozen=True)
class LocalProfile(PrivacyProfile):
    """Privacy profile of one report of a randomizer, over the pairs of `randomizer.pairs()`.

    Statement: delta(epsilon, d) = max over pairs at distance <= d of sum_y (K_a(y) - e^epsilon
    K_b(y))_+.
    Numerics: each sum is rounded up; delta is 0 from the largest log ratio on.
    """

    randomizer: Randomizer
    bound: str = "exact"

    def pure(self, distance: float) -> float:
        return max(
            (
                self.randomizer.local_epsilon(*pair)
                for pair in self.randomizer.pairs_within(distance)
            ),
            default=0.0,
        )

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        pairs = self.randomizer.pairs_within(distance)
        return min(
            1.0, max((self.randomizer.local_delta(a, b, epsilon) for a, b in pairs), default=0.0)
        )

"""Lower bounds on what shuffled reports reveal, from single data sets.

K_x is the law of the report of input x; a and b are the two inputs of one person, and w is the
blanket of the others' reports. If all other users hold the same value c, the blanket expression
with w = K_c is not a bound but the divergence itself (see `accounting/shuffling/blanket_bound.py`).
So every law here is one data set of one mechanism, evaluated from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from metricshuffle.accounting.shuffling.blanket_bound import (
    checked_users,
    delta_lower,
    epsilon_lower,
    exceeds_delta,
)
from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import (
    LowerProfile,
    checked_delta,
    checked_epsilon,
    validate_distance,
)
from metricshuffle.randomizers.dyadic_weights import Atom, whole_multiples

MAX_EXACT_REPORTS = 512  # up to here, reports are merged by exact comparison of their ratios
MIN_RATIO_GAP = 2.0**-60
MAX_SHOWN = 8  # max numbers shown of an input that is a list


def relative_tolerance_for(users: int) -> float:
    """Return the default relative tolerance of a search for epsilon.

    Evaluation costs more for few users, and fewer digits matter for many.
    """
    return 1e-7 if users <= 10**5 else 1e-5


class DataSetInputs(NamedTuple):
    """Two inputs of one person, and the input of everyone else, as the sampler takes them."""

    first: Any
    second: Any
    others: Any
    mechanism: str = ""
    """Name of the randomizer, if the bound is about several randomizers."""


@dataclass(frozen=True)
class DataSetWitness:
    """A data set that attains a lower bound: one person holds `first` or `second`.

    `others` are the values of everyone else, each with the number of people who hold it.
    """

    first: Any
    second: Any
    others: tuple[tuple[Any, int], ...]
    mechanism: str = ""

    @property
    def words(self) -> str:
        """The inputs and what the others hold, as the end of a sentence."""
        inputs = f"inputs {format_input(self.first)} and {format_input(self.second)}"
        counts = [
            "all others" if len(self.others) == 1 else f"{many:,}{'' if place else ' others'}"
            for place, (_, many) in enumerate(self.others)
        ]
        others = " and ".join(
            f"{count} hold {format_input(value)}"
            for count, (value, _) in zip(counts, self.others, strict=True)
        )
        condition = f" when {others}" if others else ""
        mechanism = f", of {self.mechanism}" if self.mechanism else ""
        return f"{inputs}{condition}{mechanism}"

    def document(self) -> dict[str, Any]:
        """Return the same as a JSON object."""
        others = [{"value": value, "count": many} for value, many in self.others]
        return {
            "first": self.first,
            "second": self.second,
            "others": others,
            **({"mechanism": self.mechanism} if self.mechanism else {}),
        }


def format_input(value: Any) -> str:
    """Format an input for a sentence; only the first numbers of a long list are shown."""
    if isinstance(value, list):
        few = ", ".join(format_input(item) for item in value[:MAX_SHOWN])
        return f"[{few}{', ...' if len(value) > MAX_SHOWN else ''}]"
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


Question = tuple[str, float, float]


@dataclass(frozen=True)
class DataSetLower(LowerProfile):
    """The largest divergence of some data sets in which all others hold the same input.

    laws(distance) returns laws of pairs at most that far apart.
    """

    laws: Callable[[float], Sequence[BlanketLaw]]
    users: int
    bound: str = "data set"
    relative: float | None = None
    """Relative tolerance of a search for epsilon; the default depends on the number of users."""
    named: Callable[[float, int], DataSetInputs | None] | None = None
    """named(distance, place) returns the inputs of the law laws(distance)[place], or None."""
    _known: dict[Question, tuple[float, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        checked_users(self.users)

    def delta(self, epsilon: float, distance: float) -> float:
        """Return a certified lower bound on delta; 0 if it cannot be computed."""
        return self._largest("delta", checked_epsilon(epsilon), validate_distance(distance))[0]

    def epsilon(self, delta: float, distance: float) -> float:
        """Return the largest epsilon found whose delta is certified to exceed `delta`, or 0."""
        return self._largest("epsilon", checked_delta(delta), validate_distance(distance))[0]

    def _largest(self, quantity: str, value: float, distance: float) -> tuple[float, int]:
        """Return the largest value, and the index of the law that attains it (-1: none)."""
        if distance == 0.0:
            return 0.0, -1
        if (quantity, value, distance) not in self._known:
            search = self._largest_delta if quantity == "delta" else self._largest_epsilon
            self._known[quantity, value, distance] = search(value, distance)
        return self._known[quantity, value, distance]

    def _largest_delta(self, epsilon: float, distance: float) -> tuple[float, int]:
        best = 0.0
        place = -1
        for index, law in enumerate(self.laws(distance)):
            delta = delta_lower(law, self.users, epsilon)
            if best < delta <= 1.0:
                best = delta
                place = index
        return best, place

    def _largest_epsilon(self, delta: float, distance: float) -> tuple[float, int]:
        best = 0.0
        place = -1
        relative = relative_tolerance_for(self.users) if self.relative is None else self.relative
        for index, law in enumerate(self.laws(distance)):
            if best > 0.0 and not exceeds_delta(law, self.users, best, delta):
                continue  # it does not improve on the best
            epsilon = epsilon_lower(law, self.users, delta, relative=relative)
            if best < epsilon < math.inf:
                best = epsilon
                place = index
        return best, place

    def witness(
        self, asked: Literal["epsilon", "delta"], given: float, distance: float
    ) -> DataSetWitness | None:
        """Return the data set behind `epsilon(given, distance)` or `delta(given, distance)`.

        None if that bound is 0 or the data set has no name.
        """
        value, place = self._largest(asked, given, distance)
        inputs = None if place < 0 or self.named is None else self.named(distance, place)
        if inputs is None:
            return None
        epsilon = given if asked == "delta" else value
        law = self.laws(distance)[place]
        first = inputs.first
        second = inputs.second
        if not law.symmetric:
            forth, back = (
                delta_lower(direction, self.users, epsilon, directions="forward")
                for direction in (law, law.reversed)
            )
            first, second = (second, first) if back > forth else (first, second)
        return DataSetWitness(
            first,
            second,
            ((inputs.others, self.users - 1),) if self.users > 1 else (),
            inputs.mechanism,
        )


def _with_mass(law: BlanketLaw, mass: Floats) -> BlanketLaw:
    scaled_law = BlanketLaw(mass, law.a, law.b, law.excess)
    # The excess of the new law is as precise as that of the old one.
    object.__setattr__(scaled_law, "rounding", law.rounding)
    return scaled_law


@theorem("metricshuffle", "data sets where all others hold a, or all hold b")
def own_data_sets(law: BlanketLaw) -> list[BlanketLaw]:
    """Return two laws of a pair (a, b): one with all others at a, one with all others at b.

    Statement: with w = K_a (or K_b) the blanket expression is the divergence of the data set in
    which all others hold a (or b), or the divergence after reports are merged by atom.
    Conditions: the atoms are sets of reports, and a, b are their true probabilities. This holds for
    laws of a randomizer, not for worst cases.
    """
    return [_with_mass(law, law.a), _with_mass(law, law.b)]


@theorem("metricshuffle", "homogeneous data sets")
def homogeneous_laws(
    first: ArrayLike, second: ArrayLike, others: Sequence[ArrayLike]
) -> list[BlanketLaw]:
    """Return one law for each value that all the others may hold, given by the law of its report.

    K_a = first, K_b = second.

    Statement: the blanket expression of each is exactly the hockey-stick divergence of that data
    set.
    Conditions: all are laws of one report.
    Numerics: reports of equal ratios are merged if there are at most 512 of them.
    """
    laws = []
    a = np.asarray(first, dtype=np.float64)
    b = np.asarray(second, dtype=np.float64)
    for law in others:
        c = np.asarray(law, dtype=np.float64)
        if c.size <= MAX_EXACT_REPORTS:
            laws.append(BlanketLaw.from_rows(np.stack([a, b, c]), 0, 1, [2]))
        else:
            some = (a > 0.0) | (b > 0.0) | (c > 0.0)
            laws.append(BlanketLaw(c[some], a[some], b[some]))
    return laws


def information(first: ArrayLike, second: ArrayLike, others: ArrayLike) -> Floats:
    """Return sum (K_a - K_b)^2/K_c for each row c of `others`, for ranking only.

    The larger it is, the less the others hide, for many users.
    """
    gap = (np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)) ** 2
    scores: Floats = (1.0 / np.maximum(np.asarray(others, dtype=np.float64), 1e-300)) @ gap
    return scores


def most_informative_rows(
    first: ArrayLike, second: ArrayLike, others: ArrayLike, many: int
) -> list[int]:
    """Return the rows of `others` with the largest `information`, one of each kind.

    Dozens of inputs of a symmetric randomizer may have the same information. Kinds are also
    distinguished by the third moment, which decides between rows with equal information.
    """
    rows = np.maximum(np.asarray(others, dtype=np.float64), 1e-300)
    scores = information(first, second, rows)
    with np.errstate(all="ignore"):  # it only distinguishes rows
        skewed = (1.0 / np.maximum(rows, 1e-100) ** 2) @ (
            np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
        ) ** 3
    kinds: dict[tuple[str, str], int] = {}
    for row in np.argsort(-scores, kind="stable").tolist():
        kinds.setdefault((f"{scores[row]:.9g}", f"{skewed[row]:.6g}"), row)
        if len(kinds) == many:
            break
    return list(kinds.values())


@theorem("metricshuffle", "k-ary randomized response, all others alike")
def krr_data_sets(options: int, keep: Fraction, other: Fraction) -> list[BlanketLaw]:
    """Return laws of k-RR with all others at a third value, and with all others at a.

    Evaluating the latter in both directions also covers all others at b.

    Statement: the atoms are the reports a, b, the others' own value c, and the rest. If the others
    hold a, w = (keep, other, rest); if they hold c, w = (other, other, keep, rest). Exact.
    Conditions: keep + (options - 1) other = 1.
    Numerics: each number rounded once.
    """
    if options < 2 or keep + (options - 1) * other != 1:
        raise InputError(
            f"keep + (options - 1) other must be 1, got {keep} and {other} with {options} options."
        )

    def law(*atoms: Atom) -> BlanketLaw:
        multiples, unit = whole_multiples(atoms)
        columns = zip(
            *((w / unit, a / unit, b / unit, (a - b) / unit) for w, a, b in multiples), strict=True
        )
        return BlanketLaw(*(np.array(column) for column in columns))

    own = law((1, keep, keep, other), (1, other, other, keep), (options - 2, other, other, other))
    if options == 2:
        return [own]
    third = law(
        (1, other, keep, other),
        (1, other, other, keep),
        (1, keep, other, other),
        (options - 3, other, other, other),
    )
    return [third, own]


@theorem("metricshuffle", "variation-ratio Proposition I.1 (merged pair), a lower bound")
def merged_pair(log_ratio: float, beta: float, log_q0: float, log_q1: float) -> BlanketLaw:
    """Return the law of reports merged to "favours a", "favours b" and "neither".

    These have probabilities (p alpha, alpha, s) for input a and (alpha, p alpha, s) for input b;
    all others hold one value.

    Statement: p = e^log_ratio, q_i = e^log_q_i, alpha = beta/(p-1), s = 1 - (p+1) alpha, r_i = p
    alpha/q_i. Every other user's merged report favours a with probability r0, favours b with
    probability r1, and is neither with the remaining probability 1 - r0 - r1. The forward
    divergence is the published H(P||Q), with its threshold low_c corrected to (ep-1) alpha c + ...
    (e = e^epsilon, and c as published). It is exact for such a mechanism, so it is a LOWER bound
    wherever merging loses something. It was published as an upper bound for every mechanism with
    these parameters; as such it is false if s > 0 (a counterexample is 3-RR with p = 3 and two
    users).
    Conditions: 0 < log_ratio, beta <= (p-1)/(p+1), r0 + r1 <= 1. The remaining probability of the
    others is put on the neutral report, whatever its ratio to s; so this is a lower bound for
    mechanisms with these parameters only where s <= max(q0, q1) (1 - r0 - r1).
    Numerics: those of the blanket expression, at any number of users.
    """
    if not (0.0 < log_ratio < math.inf and beta > 0.0 and log_q0 >= 0.0 and log_q1 >= 0.0):
        raise InputError(
            "a merged pair needs log_ratio > 0, beta > 0 and log_q0, log_q1 >= 0, got "
            f"{log_ratio!r}, {beta!r}, {log_q0!r}, {log_q1!r}."
        )
    if not beta <= math.tanh(0.5 * log_ratio) * (1.0 + 1e-15):
        raise ConditionError(
            "Proposition I.1", "beta <= (p-1)/(p+1)", f"beta = {beta!r} with log p = {log_ratio!r}"
        )
    high = beta / -math.expm1(-log_ratio)
    low = beta * math.exp(-log_ratio) / -math.expm1(-log_ratio)
    r0 = high * math.exp(-log_q0)
    r1 = high * math.exp(-log_q1)
    if not r0 + r1 <= 1.0 + 1e-15:
        raise ConditionError("Proposition I.1", "r0 + r1 <= 1", f"{r0 + r1!r}")
    s = max(0.0, 1.0 - high - low)
    neutral_mass = max(0.0, 1.0 - r0 - r1)
    atoms = [(r0, high, low, beta), (r1, low, high, -beta), (neutral_mass, s, s, 0.0)]
    return BlanketLaw(
        *(
            np.array(column)
            for column in zip(*(atom for atom in atoms if max(atom) > MIN_RATIO_GAP), strict=True)
        )
    )

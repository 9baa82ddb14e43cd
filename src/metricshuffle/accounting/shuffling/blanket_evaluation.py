"""Certified evaluators of (1/n) E[(G_1 + .. + G_n)_+] for one law of G.

G is the random variable of `blanket_law`, G_1, .., G_n are independent draws of it, S is their sum,
and x_+ = max(x, 0). The law of G is given by atoms with a mass, a value and a doubt, the scale of
the rounding error of the value (`blanket_law.Atoms`). Two evaluators are built in: M0 enumerates
all vectors of counts (how many of the n draws are each atom); M2 inverts a transform by a contour
integral. `blanket_bound` uses them through `Evaluation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from metricshuffle.accounting.shuffling.blanket_law import LARGEST_EXPONENT, Atoms, Law
from metricshuffle.errors import NotCertified
from metricshuffle.numerics.rounding import ROUNDOFF, round_down, round_up
from metricshuffle.numerics.types import Floats

WantedEnd = Literal["both", "upper", "lower"]

MAX_SMOOTHING = 2.8  # standard deviation of the smoothing in units of the range of G
# Largest number of count vectors that are enumerated before the contour is tried, for a rough and
# for a fine answer, or after the contour was not tight enough.
ROUGH_STATES = 5_000
FINE_STATES = 600_000
MAX_STATES = 10_000_000
FINE_TOLERANCE = 1e-2
ROUGH_TOLERANCE = 1e-3
NARROW_SMOOTHING = 1e-3  # narrower smoothing costs many nodes
NODE_BUDGET = 400_000  # nodes times atoms of one contour
# Both evaluators round numbers below e^-690 up, so tighter evaluations hardly lower smaller values.
MIN_VALUE = 1e-295
LOG_TAIL = 120.0  # counts in a tail of probability e^-120 are bounded


@dataclass(frozen=True)
class DeltaBracket:
    """Bracket lower <= blanket expression <= upper, and the evaluator that gave the upper end."""

    lower: float
    upper: float
    evaluator: str

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            if math.isnan(self.upper):  # a NaN must not pass as a small delta
                object.__setattr__(self, "upper", math.inf)
            if math.isnan(self.lower):
                object.__setattr__(self, "lower", 0.0)
        if not self.lower <= self.upper:
            raise NotCertified(
                f"the lower end {self.lower!r} exceeds the upper end {self.upper!r}; "
                "please report this as a bug."
            )

    @property
    def gap(self) -> float:
        """Relative width (upper - lower)/upper; 0 if both are 0."""
        return (self.upper - self.lower) / self.upper if self.upper > 0.0 else 0.0


Evaluator = Callable[[Law, int, float], DeltaBracket | None]
"""Function (law, users, epsilon) that brackets (1/n) E[S_+] for the direction (a, b).

It returns None where it does not apply.
"""


def _missing_mass(mass: Floats) -> float:
    """Return 1 - sum of the masses, rounded once (1 - fsum would round at the scale of 1)."""
    return math.fsum((1.0, *(-mass).tolist()))


def _is_rounding(missing: float, atoms: Atoms) -> bool:
    return missing <= 2.0 * ROUNDOFF * (atoms.mass.size + 2)


def _with_missing_mass(atoms: Atoms) -> tuple[Floats, Floats, Floats]:
    """Return mass, value and doubt, with an atom at 0 for mass that the blanket misses, if any."""
    missing_mass = _missing_mass(atoms.mass)
    if _is_rounding(missing_mass, atoms):
        return atoms.mass, atoms.value, atoms.doubt
    return (
        np.append(atoms.mass, missing_mass),
        np.append(atoms.value, 0.0),
        np.append(atoms.doubt, 0.0),
    )


def _draws(heaviest: float, users: int) -> int:
    """Bound how many of the n draws miss the heaviest atom, up to probability e^-LOG_TAIL.

    The bound is at most n. By Bernstein, with N the number of such draws and q the probability of
    one: P(N >= nq + t) <= exp(-t^2/(2(nq + t/3))).
    """
    mean = users * (1.0 - heaviest) + 2.0  # n times the rounding of 1 - heaviest is at most 1
    return min(
        users,
        math.floor(
            mean + LOG_TAIL / 3.0 + math.sqrt(LOG_TAIL * LOG_TAIL / 9.0 + 2.0 * mean * LOG_TAIL)
        )
        + 1,
    )


def count_vectors(atoms: Atoms, users: int) -> float:
    """Return how many vectors of counts `enumerate_counts` would visit.

    Vectors with more than eight entries count more than once, because each costs more.
    """
    missing = _missing_mass(atoms.mass)
    heaviest = float(atoms.mass.max())
    size = atoms.mass.size
    if not _is_rounding(missing, atoms):
        heaviest = max(heaviest, missing)
        size = size + 1
    draws = _draws(heaviest, users)
    if size < 2 or (size > 24 and draws > 4):
        return math.inf
    return math.comb(draws + size - 1, size - 1) * max(1.0, size / 8.0)


def enumerate_counts(atoms: Atoms, users: int) -> tuple[float, float]:
    """Bracket the expectation by M0: enumerate every vector of counts.

    The counts of the heaviest atom follow from the others. In the tail that is left out, S_+ <= n
    max(G).

    The masses are right to a few units u in the last place only, so a missing mass r (1 minus their
    sum) has a relative error of 4u/r, and each draw of the missing mass adds that much to the
    error. A missing mass that may be mere rounding is given to the heaviest atom. This is allowed
    for as follows. Let E_k[S_+] be the expectation for k draws without any missing mass, and W the
    mass where G >= 0. If the missing mass was real, J ~ Bin(n, r) of the n draws are at 0, and
    E[S_+] is the mean of E_(n-J)[S_+] over J. As E_(n-1)[S_+] <= E_n[S_+]/W, E[S_+] is at most
    e^(nr/W) times E_n[S_+], and at least 1 - nr times E_n[S_+].
    """
    from metricshuffle.accounting.shuffling import _blanket_kernels as kernels

    mass, value, doubt = _with_missing_mass(atoms)
    pivot = int(np.argmax(mass))
    max_draws = _draws(float(mass.max()), users)
    others = np.arange(mass.size) != pivot
    q = math.fsum(mass[others])
    heaviest = float(mass[pivot])
    log_pivot = math.log1p(-q) if q < 0.5 else math.log(heaviest)
    missing_mass = _missing_mass(atoms.mass)
    has_zero_atom = mass.size > atoms.mass.size
    loose = 4.0 * ROUNDOFF / missing_mass if has_zero_atom and pivot != mass.size - 1 else 0.0
    pivotal = (log_pivot, float(value[pivot]), float(doubt[pivot]), q / heaviest)
    lower, upper = kernels.enumerate_counts(
        float(users), mass[others], value[others], doubt[others], *pivotal, loose, max_draws
    )
    if not has_zero_atom and missing_mass > 0.0:
        favourable = math.fsum(mass[value - 16.0 * ROUNDOFF * doubt >= 0.0])
        upper *= (
            math.exp(users * missing_mass / favourable) * (1.0 + 1e-12)
            if users * missing_mass < 600.0 * favourable
            else math.inf
        )
        lower *= max(0.0, 1.0 - 2.0 * users * missing_mass)
    return lower, upper if max_draws == users else upper + math.exp(-LOG_TAIL) * max(
        0.0, float(value.max())
    ) * (1.0 + 1e-9)


def _single_draw(atoms: Atoms, users: int) -> float:
    """Lower bound from outcomes where exactly one of the n draws is not 0.

    This is (1-g)^(n-1) times the sum of w G_+ over the atoms, w the mass of an atom and g the total
    mass of the blanket.
    """
    drawn_mass = float(atoms.mass.sum())
    if drawn_mass >= 1.0 - 1e-12:
        return atoms.exposed[0]
    value = float(atoms.mass @ np.maximum(0.0, atoms.value - 16.0 * ROUNDOFF * atoms.doubt))
    slack = 1e-15 * (atoms.mass.size + 16) * (1.0 + users * drawn_mass / (1.0 - drawn_mass))
    return (value * math.exp((users - 1) * math.log1p(-drawn_mass) - slack) + atoms.exposed[0]) * (
        1.0 - 1e-15 * (atoms.mass.size + 16)
    )


def integrate_contour(
    atoms: Atoms, users: int, relative: float, width: float = MAX_SMOOTHING
) -> tuple[float, float, float]:
    """Bracket the expectation by M2; also return the width of the smoothing.

    The smoothing is narrowed until the bracket is as tight as `relative` or the node budget is used
    up.
    """
    from metricshuffle.accounting.shuffling._contour_kernels import contour

    lower = 0.0
    upper = math.inf
    limit = max(2_000, NODE_BUDGET // atoms.mass.size)
    for turn in range(8):
        low, high, nodes = contour(float(users), atoms.mass, atoms.value, atoms.doubt, width, limit)
        lower = low if low > lower else lower
        upper = high if high < upper else upper
        if nodes >= limit or not upper < math.inf:
            # A width from another evaluation may be too narrow here.
            if turn == 0 and width < MAX_SMOOTHING:
                width = MAX_SMOOTHING
                continue
            break
        gap = (upper - lower) / upper
        if gap <= relative or upper < MIN_VALUE:
            break
        # The error of smoothing is about quadratic in the width, the number of nodes about inverse
        # to it.
        narrower = max(
            width * (math.sqrt(0.7 * relative / gap) if gap < 0.5 else 0.05),
            width * 1.5 * nodes / limit,
        )
        if narrower > 0.8 * width:
            break
        width = narrower
    return lower, upper, width


@dataclass
class Evaluation:
    """Evaluation of one direction of one law, with its accuracy and the cost of the last one.

    `width` is the last smoothing width and `states` the number of count vectors; they decide which
    evaluator is tried first.
    """

    law: Law
    users: int
    relative: float
    evaluators: Sequence[Evaluator] = ()
    width: float = MAX_SMOOTHING
    states: float = math.nan
    quick: bool = False
    """Enumerate counts only where they are very few, for a search that certifies nothing."""

    def _expectation(self, atoms: Atoms) -> tuple[float, float, str]:
        """Bracket (1/n) E[S_+] of these atoms, and name the evaluator of the upper end.

        The evaluators are tried in the order of their cost.
        """
        low, high = atoms.exposed
        lower = low
        upper = atoms.local
        winner = "local"
        if not atoms.mass.size or upper - lower <= self.relative * upper:
            return lower, upper, winner
        if math.isnan(self.states):
            self.states = count_vectors(atoms, self.users)
        fine = (self.relative < FINE_TOLERANCE or self.width < NARROW_SMOOTHING) and not self.quick
        few = self.states <= (FINE_STATES if fine else ROUGH_STATES)
        methods = ["enumeration", "contour"] if few else ["contour", "enumeration"]
        relative = max(self.relative, self.law.resolution)
        for method in methods:
            if method == "contour":
                # A search starts from its last width; a certified result must not depend on it.
                lower_end, upper_end, self.width = integrate_contour(
                    atoms, self.users, relative, self.width if self.quick else MAX_SMOOTHING
                )
            elif self.states <= MAX_STATES:
                lower_end, upper_end = enumerate_counts(atoms, self.users)
            else:
                continue
            if upper_end + high < upper:
                upper = round_up(upper_end + high, 4)
                winner = method
            if lower_end + low > lower:
                lower = round_down(lower_end + low, 4)
            # Unless the tail that an enumeration cut off matters, its gap comes from rounding
            # alone, and no other method would help.
            if (
                upper - lower
                <= max(relative, ROUGH_TOLERANCE if method == "enumeration" else 0.0) * upper
                or upper < MIN_VALUE
            ):
                return lower, upper, winner
        return max(lower, _single_draw(atoms, self.users)), upper, winner

    def likely(self, epsilon: float, *, above: bool) -> float:
        """Estimate the result of a tighter evaluation, for atoms rounded outward (above) or inward.

        Nothing is certified. The estimate is the middle of the bracket: except for lattices,
        smoothing adds about half of what it may add at most.
        """
        if epsilon >= self.law.pure:
            return 0.0
        lower, upper, _ = self._expectation(self.law.atoms(epsilon, above=above))
        for evaluator in self.evaluators:
            bracket = evaluator(self.law, self.users, epsilon)
            if bracket is not None:
                lower = max(lower, bracket.lower)
                upper = min(upper, bracket.upper)
        return 0.5 * (lower + upper) if 0.5 * upper < lower <= upper else upper

    def bracket(self, epsilon: float, *, wanted: WantedEnd = "both") -> DeltaBracket:
        """Bracket by the tighter end of every evaluator.

        If only one end is wanted, the other end may be trivial.
        """
        if epsilon >= self.law.pure:
            return DeltaBracket(0.0, 0.0, "local")
        lower = 0.0
        upper = 1.0
        winner = "local"
        exact = self.law.resolution == 0.0
        for evaluator in self.evaluators:
            evaluated = evaluator(self.law, self.users, epsilon)
            if evaluated is not None:
                lower = max(lower, evaluated.lower)
                if evaluated.upper < upper:
                    upper = evaluated.upper
                    winner = evaluated.evaluator
        if winner == "local" or upper - lower > self.relative * upper:
            low, high, name = (
                self._expectation(self.law.atoms(epsilon))
                if exact or wanted != "lower"
                else (0.0, 1.0, winner)
            )
            if not exact:  # the atoms were rounded outward; a lower end needs them rounded inward
                low = (
                    0.0
                    if wanted == "upper"
                    else self._expectation(self.law.atoms(epsilon, above=False))[0]
                )
            # Beyond LARGEST_EXPONENT, G was evaluated at a smaller epsilon.
            if epsilon <= LARGEST_EXPONENT and low > lower:
                lower = low
            if high < upper:
                upper = high
                winner = name
        return DeltaBracket(lower, upper, winner)

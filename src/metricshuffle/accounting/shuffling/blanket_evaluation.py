"""Certified evaluators of (1/n) E[(G_1 + .. + G_n)_+] for one law of G: M0 visits all counts, M2 inverts a transform."""

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

MAX_SMOOTHING = 2.8  # smoothing in units of the range of G
# vectors of counts: visited first if a rough or a fine answer is wanted, or only if the contour does not do
ROUGH_STATES, FINE_STATES, MAX_STATES = 5_000, 600_000, 10_000_000
FINE_TOLERANCE = 1e-2
ROUGH_TOLERANCE = 1e-3
NARROW_SMOOTHING = 1e-3  # a width that costs many nodes
NODE_BUDGET = 400_000  # nodes times atoms of one contour
MIN_VALUE = 1e-295  # both evaluators round up what is smaller than e^-690: closer looks hardly lower it
LOG_TAIL = 120.0  # counts beyond probability e^-120 are bounded


@dataclass(frozen=True)
class DeltaBracket:
    """lower <= the blanket expression <= upper, and which evaluator gave the upper end."""

    lower: float
    upper: float
    evaluator: str

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            if math.isnan(self.upper):  # NaN is never small
                object.__setattr__(self, "upper", math.inf)
            if math.isnan(self.lower):
                object.__setattr__(self, "lower", 0.0)
        if not self.lower <= self.upper:
            raise NotCertified(f"the lower end {self.lower!r} exceeds the upper end {self.upper!r}; please report this as a bug.")

    @property
    def gap(self) -> float:
        """(upper - lower)/upper; 0 if both are 0."""
        return (self.upper - self.lower) / self.upper if self.upper > 0.0 else 0.0


Evaluator = Callable[[Law, int, float], DeltaBracket | None]
"""(law, users, epsilon) -> a bracket of (1/n) E[S_+] for the direction (a, b), or None where it does not apply."""


def _missing_mass(mass: Floats) -> float:
    """1 - sum of the masses, rounded once (1 - fsum would round at the scale of 1)."""
    return math.fsum((1.0, *(-mass).tolist()))


def _is_rounding(rest: float, atoms: Atoms) -> bool:
    return rest <= 2.0 * ROUNDOFF * (atoms.mass.size + 2)


def _with_missing_mass(atoms: Atoms) -> tuple[Floats, Floats, Floats]:
    """mass, value, doubt with an atom at 0 for what the blanket leaves, if it leaves anything."""
    missing_mass = _missing_mass(atoms.mass)
    if _is_rounding(missing_mass, atoms):
        return atoms.mass, atoms.value, atoms.doubt
    return np.append(atoms.mass, missing_mass), np.append(atoms.value, 0.0), np.append(atoms.doubt, 0.0)


def _draws(heaviest: float, users: int) -> int:
    """How many of the n draws miss the heaviest atom, at most, but for probability e^-TAIL (Bernstein; n itself if that is less).

    P(N >= nq + t) <= exp(-t^2/(2(nq + t/3))).
    """
    mean = users * (1.0 - heaviest) + 2.0  # (n times the rounding of 1 - max is at most 1)
    return min(users, math.floor(mean + LOG_TAIL / 3.0 + math.sqrt(LOG_TAIL * LOG_TAIL / 9.0 + 2.0 * mean * LOG_TAIL)) + 1)


def count_vectors(atoms: Atoms, users: int) -> float:
    """How many vectors of counts `enumerate_counts` would visit; long ones count more."""
    rest, heaviest, size = _missing_mass(atoms.mass), float(atoms.mass.max()), atoms.mass.size
    if not _is_rounding(rest, atoms):
        heaviest, size = max(heaviest, rest), size + 1
    draws = _draws(heaviest, users)
    if size < 2 or (size > 24 and draws > 4):
        return math.inf
    return math.comb(draws + size - 1, size - 1) * max(1.0, size / 8.0)


def enumerate_counts(atoms: Atoms, users: int) -> tuple[float, float]:
    """M0 (lower, upper): every vector of counts; those of the heaviest atom follow. In the tail that is left out S_+ <= n max(G).

    The masses are right to a few units only, so a rest r is right to 4u/r of itself, and each draw of it costs that much.
    A rest taken for rounding is given to the heaviest atom. If it was real, E[S_+] is the mean, over J ~ Bin(n, r) draws at 0, of
    E_(n-J)[S_+], and E_(n-1)[S_+] <= E_n[S_+]/W, W the mass where G >= 0: at most e^(nr/W) times, at least 1 - nr times as much.
    """
    from metricshuffle.accounting.shuffling import _blanket_kernels as kernels

    mass, value, doubt = _with_missing_mass(atoms)
    pivot, max_draws = int(np.argmax(mass)), _draws(float(mass.max()), users)
    others = np.arange(mass.size) != pivot
    q, heaviest = math.fsum(mass[others]), float(mass[pivot])
    log_pivot = math.log1p(-q) if q < 0.5 else math.log(heaviest)
    missing_mass, has_zero_atom = _missing_mass(atoms.mass), mass.size > atoms.mass.size
    loose = 4.0 * ROUNDOFF / missing_mass if has_zero_atom and pivot != mass.size - 1 else 0.0
    pivotal = (log_pivot, float(value[pivot]), float(doubt[pivot]), q / heaviest)
    lower, upper = kernels.enumeration(float(users), mass[others], value[others], doubt[others], *pivotal, loose, max_draws)
    if not has_zero_atom and missing_mass > 0.0:
        favourable = math.fsum(mass[value - 16.0 * ROUNDOFF * doubt >= 0.0])
        upper *= math.exp(users * missing_mass / favourable) * (1.0 + 1e-12) if users * missing_mass < 600.0 * favourable else math.inf
        lower *= max(0.0, 1.0 - 2.0 * users * missing_mass)
    return lower, upper if max_draws == users else upper + math.exp(-LOG_TAIL) * max(0.0, float(value.max())) * (1.0 + 1e-9)


def _single_draw(atoms: Atoms, users: int) -> float:
    """A lower bound: only the outcomes where one draw of the n is not 0, (1-g)^(n-1) sum w G_+, g the mass of the blanket."""
    drawn_mass = float(atoms.mass.sum())
    if drawn_mass >= 1.0 - 1e-12:
        return atoms.exposed[0]
    value = float(atoms.mass @ np.maximum(0.0, atoms.value - 16.0 * ROUNDOFF * atoms.doubt))
    slack = 1e-15 * (atoms.mass.size + 16) * (1.0 + users * drawn_mass / (1.0 - drawn_mass))
    return (value * math.exp((users - 1) * math.log1p(-drawn_mass) - slack) + atoms.exposed[0]) * (1.0 - 1e-15 * (atoms.mass.size + 16))


def integrate_contour(atoms: Atoms, users: int, relative: float, width: float = MAX_SMOOTHING) -> tuple[float, float, float]:
    """M2 (lower, upper, width): the smoothing is narrowed until the bracket is as tight as asked or the nodes run out."""
    from metricshuffle.accounting.shuffling._contour_kernels import contour

    lower, upper = 0.0, math.inf
    limit = max(2_000, NODE_BUDGET // atoms.mass.size)
    for turn in range(8):
        low, high, nodes = contour(float(users), atoms.mass, atoms.value, atoms.doubt, width, limit)
        lower, upper = (low if low > lower else lower), (high if high < upper else upper)
        if nodes >= limit or not upper < math.inf:
            if turn == 0 and width < MAX_SMOOTHING:  # (what was narrow enough elsewhere is too narrow here)
                width = MAX_SMOOTHING
                continue
            break
        gap = (upper - lower) / upper
        if gap <= relative or upper < MIN_VALUE:
            break
        # what smoothing adds is about quadratic in the width, the nodes are about inverse to it
        narrower = max(width * (math.sqrt(0.7 * relative / gap) if gap < 0.5 else 0.05), width * 1.5 * nodes / limit)
        if narrower > 0.8 * width:
            break
        width = narrower
    return lower, upper, width


@dataclass
class Evaluation:
    """One direction of one law, how finely it is evaluated, and what that took last time: the width decides what is tried first."""

    law: Law
    users: int
    relative: float
    evaluators: Sequence[Evaluator] = ()
    width: float = MAX_SMOOTHING
    states: float = math.nan
    quick: bool = False
    """Whether all counts are visited only where they are very few, as a search does that certifies nothing."""

    def _expectation(self, atoms: Atoms) -> tuple[float, float, str]:
        """(lower, upper, evaluator) of (1/n) E[S_+] of these atoms, the evaluators in the order of their cost."""
        low, high = atoms.exposed
        lower, upper, winner = low, atoms.local, "local"
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
                # (a search begins where it was before; what is certified does not depend on what came before)
                lower_end, upper_end, self.width = integrate_contour(
                    atoms, self.users, relative, self.width if self.quick else MAX_SMOOTHING
                )
            elif self.states <= MAX_STATES:
                lower_end, upper_end = enumerate_counts(atoms, self.users)
            else:
                continue
            if upper_end + high < upper:
                upper, winner = round_up(upper_end + high, 4), method
            if lower_end + low > lower:
                lower = round_down(lower_end + low, 4)
            # what is left after an enumeration is rounding, unless the tail it cut off matters: no other method would help
            if upper - lower <= max(relative, ROUGH_TOLERANCE if method == "enumeration" else 0.0) * upper or upper < MIN_VALUE:
                return lower, upper, winner
        return max(lower, _single_draw(atoms, self.users)), upper, winner

    def likely(self, epsilon: float, *, above: bool) -> float:
        """About what a closer look would give, for atoms rounded outward (above) or inward: a guess, of which nothing is certified.

        What smoothing adds, in all but a lattice, is half of what it may add.
        """
        if epsilon >= self.law.pure:
            return 0.0
        lower, upper, _ = self._expectation(self.law.atoms(epsilon, above=above))
        for evaluator in self.evaluators:
            bracket = evaluator(self.law, self.users, epsilon)
            if bracket is not None:
                lower, upper = max(lower, bracket.lower), min(upper, bracket.upper)
        return 0.5 * (lower + upper) if 0.5 * upper < lower <= upper else upper

    def bracket(self, epsilon: float, *, wanted: WantedEnd = "both") -> DeltaBracket:
        """The tighter end of every evaluator; where only one end is wanted, the other may be useless."""
        if epsilon >= self.law.pure:
            return DeltaBracket(0.0, 0.0, "local")
        lower, upper, winner, exact = 0.0, 1.0, "local", self.law.resolution == 0.0
        for evaluator in self.evaluators:
            evaluated = evaluator(self.law, self.users, epsilon)
            if evaluated is not None:
                lower = max(lower, evaluated.lower)
                if evaluated.upper < upper:
                    upper, winner = evaluated.upper, evaluated.evaluator
        if winner == "local" or upper - lower > self.relative * upper:
            low, high, name = self._expectation(self.law.atoms(epsilon)) if exact or wanted != "lower" else (0.0, 1.0, winner)
            if not exact:  # the atoms were rounded outward: a lower end needs them rounded inward
                low = 0.0 if wanted == "upper" else self._expectation(self.law.atoms(epsilon, above=False))[0]
            if epsilon <= LARGEST_EXPONENT and low > lower:  # beyond, G was evaluated at a smaller epsilon
                lower = low
            if high < upper:
                upper, winner = high, name
        return DeltaBracket(lower, upper, winner)

"""Losses of counts to which a shuffler added dummies: one person, people together, items, draws.

A count of messages has Z dummies, Z = t + (a draw of a `DyadicTable` of radius t), so 0 <= Z <= 2t.
If one more person is counted the law moves by one, and the ratio of its probabilities is that of
neighbouring weights of the table, or infinite at an end. All numbers here are computed from the
weights that are drawn. Proofs are on docs/proofs/shuffler-noise.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, argument
from metricshuffle.noise.dyadic_table import TOTAL_WEIGHT, DyadicTable
from metricshuffle.numerics.rounding import round_up
from metricshuffle.privacy.profile import checked_epsilon

# Up to this many counts, binomial coefficients are computed as integers.
MAX_EXACT_COUNTS = 256
# Relative error of the logarithm of a gamma function.
LOG_GAMMA_ERROR = 1e-14


@dataclass(frozen=True)
class DummyLaw:
    """Law of the number of dummies of a part: `table` moved to 0..2t, t the radius of the table."""

    table: DyadicTable

    @classmethod
    def geometric(cls, rate: float, radius: int) -> DummyLaw:
        """Law with q(z) in proportion to e^(-rate |z - radius|), rounded to a table."""
        return _geometric(rate, radius)

    @property
    def radius(self) -> int:
        """Mean number of dummies, and half of their maximum."""
        return self.table.radius

    @cached_property
    def _ratios(self) -> tuple[float, float]:
        """Smallest and largest ln(w_z / w_(z+1)) of the table, rounded outwards."""
        weights = self.table.weights
        logs = [math.log1p((weight - outer) / outer) for weight, outer in pairwise(weights)]
        lowest = min(logs, default=0.0)
        return lowest - 1e-15 * abs(lowest), round_up(max(map(abs, logs), default=0.0), 8)

    @property
    def rate(self) -> float:
        """Largest |log| of the ratio of two neighbouring probabilities, rounded up."""
        return self._ratios[1]

    @property
    def lowest_rate(self) -> float:
        """Smallest log of the ratio of a probability and the next one outwards, rounded down."""
        return self._ratios[0]

    @cached_property
    def _outermost(self) -> tuple[int, ...]:
        """Sums of the 0, 1, 2, ... outermost weights of one side."""
        return tuple(accumulate(self.table.weights[:0:-1], initial=0))

    def tail(self, atoms: int) -> float:
        """Probability of the last `atoms` numbers, rounded up; 1 beyond the mode."""
        if not 0 <= atoms <= self.radius:
            return 1.0
        return _float_above(Fraction(self._outermost[atoms], TOTAL_WEIGHT))

    @cached_property
    def end(self) -> float:
        """Probability of the largest number, which is that of no dummies; rounded up."""
        return self.tail(1)

    @cached_property
    def steps(self) -> tuple[float, float]:
        """Probabilities of a loss of +rate and of -rate if a count rises by one; rounded up."""
        down = Fraction(self._outermost[-1], TOTAL_WEIGHT)
        dead = Fraction(self.table.weights[-1], TOTAL_WEIGHT)
        return _float_above(1 - down - dead), _float_above(down)


@lru_cache(maxsize=64)
def _geometric(rate: float, radius: int) -> DummyLaw:
    return DummyLaw(DyadicTable.bounded_geometric(rate, radius))


def _float_above(number: Fraction) -> float:
    nearest = float(number)
    return nearest if Fraction(nearest) >= number else math.nextafter(nearest, math.inf)


@theorem("Murakami25", "Dummies, one person: the exact divergence, for several piles")
def one_person_delta(law: DummyLaw, counts: int, epsilon: float) -> float:
    """Upper bound on delta if one person moves and `counts` counts change by one each.

    Statement: a pile of independent dummies in which the person's part changes has two such counts,
    a pile of complementary dummies (Z of one part and 2t - Z of the other) has one. Let q be the
    law of Z. Each count independently has a loss of +rate with probability up = P(t <= Z < 2t), of
    -rate with probability down = P(Z < t), and an infinite loss with probability q(2t). So delta =
    1 - (1 - q(2t))^k + sum_i C(k, i) up^i down^(k-i) (1 - e^(epsilon - (2i - k) rate))_+ for k
    counts, in both directions.
    Proof: given all else, a count is Z + 1 against Z, with the ratio q(z)/q(z+1), or it is Z
    against Z + 1, and the table is symmetric. Counts of other parts have the same law. QED See
    docs/proofs/shuffler-noise.md.
    Conditions: the number of people is public; all parts have this law.
    Numerics: the table's own ratios: positive losses count as the largest, negative ones as the
    smallest in size. Every term is rounded up.
    Reference: Murakami, Sei, Eriguchi 2025 for one pile; the sum is attained if all ratios of the
    law are equal.
    """
    if isinstance(counts, bool) or not isinstance(counts, int) or counts < 0:
        raise InputError(f"counts must be a whole number >= 0, got {counts!r}.")
    allowed = checked_epsilon(epsilon)
    if counts == 0:
        return 0.0
    up, down = law.steps
    if law.end >= 1.0 or down == 0.0:
        return 1.0
    terms = [-math.expm1(counts * math.log1p(-law.end))]
    for rises in range(counts, -1, -1):
        loss = rises * law.rate - (counts - rises) * law.lowest_rate
        loss += 4e-16 * counts * law.rate
        if loss <= allowed:
            break
        log_chance = (
            _log_binomial(counts, rises) + rises * math.log(up) + (counts - rises) * math.log(down)
        )
        terms.append(math.exp(log_chance) * -math.expm1(allowed - loss))
    largest = _log_binomial(counts, counts // 2) + 2.0 * counts
    error = LOG_GAMMA_ERROR * largest if counts > MAX_EXACT_COUNTS else 4e-16 * largest
    return min(1.0, math.fsum(terms) * (1.0 + error + 1e-15))


def _log_binomial(total: int, part: int) -> float:
    if total <= MAX_EXACT_COUNTS:
        return math.log(math.comb(total, part))
    return math.lgamma(total + 1) - math.lgamma(part + 1) - math.lgamma(total - part + 1)


@theorem("metricshuffle", "Dummies, people together: the ends of the law")
def together_delta(law: DummyLaw, changes: int, sides: int, each: int | None = None) -> float:
    """Upper bound on delta at epsilon = `sides` rate `changes`, for any people who move.

    Statement: people change their parts of piles L = `changes` times in all. Then delta <= `sides`
    times P(Z among its L largest numbers), where `sides` is 2 for independent dummies and 1 for
    complementary ones. If no count changes by more than m = `each` (the items of one person), delta
    is at most ceil(L/m) times the delta of m changes.
    Proof: off the ends of the law the loss is at most rate times the sum of the changes of all
    counts, which is at most `sides` rate L. A count that changes by s leaves the range of the law
    with the probability of its s outermost numbers. This probability is convex in s up to the mode,
    so the sum over counts is largest if all changes are between one pair of parts, m at a time. QED
    Conditions: L (or m) is at most t; otherwise 1 is returned.
    Numerics: exact sums of weights, rounded up. This delta is not L times that of one change: with
    rate ln 2 and t = 5, the delta of two people who make the same move is 2.97 times that of one.
    """
    if changes < 0 or sides not in (1, 2) or (each is not None and each < 1):
        raise InputError(
            f"changes must be >= 0, of 1 or 2 sides and at least 1 item; got "
            f"{changes!r}, {sides!r}, {each!r}."
        )
    if changes == 0:
        return 0.0
    if each is None or changes <= each:
        return min(1.0, sides * law.tail(changes))
    return min(1.0, round_up(sides * -(-changes // each) * law.tail(each), 4))


@theorem("metricshuffle", "Dummies, the extension lemma")
def extension_delta(law: DummyLaw, loss: float, parts: int) -> float:
    """Upper bound on delta for mixtures of data sets whose loss is at most `loss` off the ends.

    Statement: let q~ be q, continued geometrically with its largest rate over all integers, and let
    `loss` bound the loss of the mixtures under q~. Then delta at `loss` is at most e^loss ((1 +
    m)^K - 1), m = 2 q(0)/(e^rate - 1), K = `parts` the number of parts whose law differs (of piles,
    if dummies are complementary); nearly e^loss K m.
    Proof: P <= P~ <= e^loss Q~. The mass of q~ outside 0..2t is q(0)/(e^rate - 1) on either side,
    so K parts have the mass (1 + m)^K under q~ and 1 under q, which is nowhere larger. QED
    """
    if law.radius == 0 or not loss >= 0.0:
        return 1.0
    if parts == 0:
        return 0.0
    if loss > 700.0:
        return 1.0
    each = 2.0 * law.end / math.expm1(law.rate * (1.0 - 1e-15))
    outside = math.expm1(min(700.0, parts * math.log1p(each)))
    return min(1.0, math.exp(loss) * outside * (1.0 + 1e-14))


@theorem("metricshuffle", "Dummies, random ramps: the loss of a step")
def ramp_step_loss(rate: float, width: int) -> float:
    """Loss of one step of one person if each window of `width` thresholds is sent as one bit.

    Statement: the bit of a window is 1 with probability v/`width`, where v is the number of its
    thresholds at or above the value. With dummies of this rate a step costs at most e1 = ln(1 +
    (e^rate - 1)/`width`), under the continued law. This bound is attained; costs add up over steps,
    people and items.
    Proof: let B = e^e1 - 1. A bit that is 1 with probability i/w has a count whose law is at most
    (1 + iB)/(1 + i'B) times that of i', and this is at most (1+B)^(i-i') for i > i'; across a
    border of two windows (1 + wB) <= (1 + (w-b)B)(1 + bB). QED
    Conditions: every window has the divisor `width`, also a last one with fewer thresholds. If the
    divisor of such a window were its own smaller width, the statement would be false.
    Numerics: rounded up.
    """
    if width < 1 or not 0.0 < rate < math.inf:
        raise InputError(
            f"{argument('rate')} must be > 0 and the width at least 1, got {rate!r}, {width!r}."
        )
    if rate > 700.0:
        return rate
    return rate if width == 1 else round_up(math.log1p(math.expm1(rate) / width), 16)


def ramp_rate(step_loss: float, width: int) -> float:
    """Rate of the dummies for which a step of random ramps costs `step_loss`."""
    return math.log1p(width * math.expm1(step_loss))


@theorem("metricshuffle", "Dummies, items drawn with replacement")
def drawn_epsilon(
    draws: int, loss: float, moves: Sequence[tuple[float, float]], largest: float
) -> float:
    """Epsilon of `draws` items that are drawn with replacement from those of one person.

    Statement: a plan moves the mass pi of the person's items by a change of D parts, for (pi, D) in
    `moves`; `largest` is the largest D of any two points, and `loss` the loss of one changed part
    (2 rate for independent dummies, rate for complementary ones). Then epsilon = m ln(1 + e^(loss
    Dmax) sum pi (1 - e^(-loss D))), under the continued law; delta is that of `extension_delta`.
    This epsilon is attained, and the simpler formula `loss` m sum pi D is false: {a} against {a, b}
    with loss 2 ln 2 and m = 1 costs 0.916, not 0.693.
    Proof: one draw at a time. The law f(x) of the counts given the draw x has f(x) - f(y) <= f(x)
    (1 - e^(-loss D)) and f(x) <= e^(loss Dmax) times the smallest. QED
    """
    moved = math.fsum(mass * -math.expm1(-loss * parts) for mass, parts in moves)
    if not (draws >= 1 and loss >= 0.0 and largest >= 0.0 and moved >= 0.0):
        raise InputError(f"draws need at least 1 of them and losses >= 0, got {draws!r}, {loss!r}.")
    if loss * largest > 700.0:
        return math.inf if moved else 0.0
    return round_up(draws * math.log1p(math.exp(loss * largest) * moved), 32)


def drawn_slope(draws: int, loss: float, slope: float, largest: float) -> float:
    """Epsilon per unit of earth mover's distance of drawn items: m e^(loss Dmax) loss slope.

    `slope` is the largest number of changed parts per unit of distance between two points. This
    bounds `drawn_epsilon`: ln(1 + x) <= x and 1 - e^(-x) <= x.
    """
    if loss * largest > 700.0:
        return math.inf
    return round_up(draws * math.exp(loss * largest) * loss * slope, 32)

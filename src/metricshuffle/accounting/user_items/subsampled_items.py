"""Users of any size for a mechanism that needs a fixed number of items: each user draws s of their items with replacement.

Two users at earth mover's distance w draw s coupled pairs of items, so their samples are at distance D, the mean of s
independent distances in [0, diameter] with mean w. Nothing is known about D but that, and it is enough: M(sample) is a mixture
over the pairs of samples, and the hockey-stick divergence of mixtures is at most the mean of the divergences (bounds a and b).
Where every drawn item is reported by itself, the reports are independent draws from the mean law of her items, and the laws of two
users are close at every report, not only on average (bound c).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.accounting.shuffling.clone_bound import ClonePair
from metricshuffle.accounting.shuffling.clone_bound import delta_upper as clones_delta
from metricshuffle.accounting.user_items.item_reports import ItemWiseProfile
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.numerics.rounding import ROUNDOFF, round_down, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, Shape, checked_delta, checked_epsilon, validate_distance

MAX_SAMPLES = 10_000_000
SMALL_FACTORIALS = 16
MIN_INTERVAL_FRACTION = 1e-6  # of the distance: below, a linear promise is given up
MAX_INTERVALS = 2000
COMPARISON_SLACK = 1e-12  # relative: by far more than what a comparison of two sums of a few positive terms is rounded by
SPLIT_TOLERANCE = 1e-4  # relative: any level is valid, and near the crossing all are about as good


def validate_samples(samples: int) -> int:
    """samples as an integer in 1..10^7, or a sentence."""
    if isinstance(samples, bool) or not isinstance(samples, int) or not 1 <= samples <= MAX_SAMPLES:
        raise InputError(f"samples, the number of items every user draws, must be a whole number in 1..10^7, got {samples!r}.")
    return samples


def _validate_diameter(diameter: float) -> float:
    if isinstance(diameter, bool) or not (isinstance(diameter, int | float) and 0.0 < diameter < math.inf):
        raise InputError(f"diameter must be a finite number > 0, got {diameter!r}.")
    return float(diameter)


def _of_diameter(part: float, diameter: float) -> float:
    """part * diameter, rounded up."""
    return diameter if part >= 1.0 else round_up(part * diameter, 2)


def _validate_mean(mean: float) -> float:
    return min(validate_distance(mean), 1.0)


@theorem("metricshuffle", "Chernoff bound of a sampled distance")
def chernoff_tail(samples: int, mean: float, level: float) -> float:
    """exp(-s KL(q || r)): bound on P(D >= q) for the mean D of s independent variables in [0, 1] with mean <= r; 1 for q <= r.

    Statement: KL(q || r) = q ln(q/r) + (1-q) ln((1-q)/(1-r)). Conditions: 0 <= r, q <= 1.
    Numerics: logarithms by log1p of differences where q is near r; every term is off by a few ulp, which s multiplies; rounded up.
    Reference: Hoeffding 1963, Theorem 1.
    """
    s, r, q = validate_samples(samples), _validate_mean(mean), validate_distance(level)
    if q <= r:
        return 1.0
    if r == 0.0 or q > 1.0:
        return 0.0
    hit_term = q * math.log1p((q - r) / r)
    miss_term = (1.0 - q) * math.log1p((r - q) / (1.0 - r)) if q < 1.0 else 0.0
    exponent = s * (hit_term + miss_term)
    slack = 16.0 * ROUNDOFF * s * (abs(hit_term) + abs(miss_term) + q + (1.0 - q) / (1.0 - r) * ROUNDOFF) + 4.0 * ROUNDOFF * abs(exponent)
    return min(1.0, round_up(math.exp(-max(exponent - slack, 0.0)), 4) + 1e-320)


@theorem("metricshuffle", "KL radius of a sampled user")
def sampled_radius(samples: int, mean: float, delta: float) -> tuple[float, float]:
    """(c, missed): samples of two users at distance <= `mean` (diameter 1) are within c, but for a probability `missed` <= delta.

    Statement: c is the smallest q with exp(-s KL(q || r)) <= delta; where even q = 1 has more (r^s > delta), c = 1 and nothing is
    missed, because no two samples are farther apart.
    Conditions: 0 <= delta < 1. Numerics: bisection on rounded-up tails, the last value that passed.
    Reference: replaces Imola24 Lemma 5.2, whose printed "3/8" must read 3/s and is 2.8 times as large even then.
    """
    s, r, allowed = validate_samples(samples), _validate_mean(mean), checked_delta(delta)
    if r == 0.0:
        return 0.0, 0.0
    if r >= 1.0 or not chernoff_tail(s, r, 1.0) <= allowed:
        return 1.0, 0.0
    return last_certified(lambda q: chernoff_tail(s, r, q) <= allowed, r, 1.0), allowed


def _stirling_remainder(n: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bound on ln n! - ln(sqrt(2 pi n) (n/e)^n), n >= 1: the series alternates, small n are exact."""
    low = 1.0 / (12.0 * n) - 1.0 / (360.0 * n**3) + 1.0 / (1260.0 * n**5) - 1.0 / (1680.0 * n**7)
    high = low + 1.0 / (1680.0 * n**7)
    for k in range(1, SMALL_FACTORIALS):
        exact = math.log(math.factorial(k)) - (k + 0.5) * math.log(k) + k - 0.5 * math.log(2.0 * math.pi)
        low, high = np.where(n == k, exact - 1e-13, low), np.where(n == k, exact + 1e-13, high)
    return low, high


@theorem("metricshuffle", "binomial masses, rounded up")
def _log_masses(samples: int, mean: float, first: int) -> Floats:
    """Upper bounds on ln P(J = j), j = first..s, J ~ Bin(s, r), 0 < first, r < 1.

    Statement: P(J = j) = sqrt(s / (2 pi j (s-j))) exp(-s KL(j/s || r)) times e to the Stirling rests of s, -j and -(s-j).
    Numerics: each logarithm is off by a few ulp, which its factor j or s - j multiplies; the exponent is raised by that.
    Reference: Loader 2000.
    """
    s, r = float(samples), mean
    j = np.arange(first, samples, dtype=np.float64)
    hit_term, miss_term = j * np.log(j / (s * r)), (s - j) * (np.log1p(-j / s) - math.log1p(-r))
    remainder = _stirling_remainder(np.array([s]))[1][0] - _stirling_remainder(j)[0] - _stirling_remainder(s - j)[0]
    logs = -hit_term - miss_term + remainder + 0.5 * (np.log(s / j) - np.log(2.0 * math.pi * (s - j)))
    slack = 16.0 * ROUNDOFF * (np.abs(hit_term) + np.abs(miss_term) + s + 10.0)
    last = s * math.log(r)
    return np.append(logs + slack, last + 8.0 * ROUNDOFF * abs(last))


@theorem("metricshuffle", "expected profile of a sampled user, pure mechanisms")
def expected_delta(epsilon: float, samples: int, mean: float, cost: float) -> float:
    """Bound (b): E[(e^(cost J/s) - e^epsilon)_+] / (1 + e^epsilon), J ~ Bin(s, r); `cost` = rate * diameter.

    Statement: samples D apart (in diameters) have their log likelihood ratio in [-cost D, cost D], so their divergence is at most
    (e^(cost D) - e^epsilon)_+ / (1 + e^(cost D)) <= (e^(cost D) - e^epsilon)_+ / (1 + e^epsilon), convex and increasing in D.
    Of all means of s independent variables in [0, 1] with mean r, that of Bernoulli variables makes the expectation of a convex
    function largest (replace one after the other); increasing: a smaller mean gives less.
    Conditions: pure in both directions. Numerics: binomial masses rounded up, all terms of the tail summed.
    Reference: this docstring.
    """
    epsilon, s, r = checked_epsilon(epsilon), validate_samples(samples), _validate_mean(mean)
    if not 0.0 <= cost < math.inf:
        raise InputError(f"cost must be a finite number >= 0, got {cost!r}.")
    if r == 0.0 or round_up(cost, 4) <= epsilon:
        return 0.0
    if r >= 1.0:
        return PureProfile(cost).delta(epsilon, 1.0)
    first = max(1, math.floor(round_down(s * (epsilon / cost), 8)))
    j = np.arange(first, s + 1, dtype=np.float64)
    excess = np.maximum(cost * (j / s) - epsilon + 8.0 * ROUNDOFF * (cost + epsilon), 0.0)
    powers = np.minimum(_log_masses(s, r, first) + excess, 600.0)  # their sum fits into a double
    terms = np.exp(powers) * -np.expm1(-excess)
    return min(1.0, float(np.sum(terms)) / (1.0 + math.exp(-epsilon)) * (1.0 + 1e-12) + 1e-300)


@theorem("metricshuffle", "reports about sampled items")
def report_loss(total: float, mean: float) -> float:
    """log R: how much more likely a report about a drawn item is for one user than for another, at most, `mean` apart (diameter 1).

    Statement: let f(x) > 0 with f(x) <= e^(T d(x,x')) f(x') for all points, T = `total`, and P, Q be at earth mover's distance <= w. Then
    E_P f <= R E_Q f for every R >= e^(Tw) with e^T + (R-1) <= (R-1) (1/T + d)/w, d = 1 - log((R-1)/(w T R))/T, or with T d <= log R; where
    that d exceeds 1, for every R >= 1 + w (e^T - 1). In particular for R = 1 + T w e^T, and for R = e^T.
    Proof: docs/proofs/item-moves.md. In short: a coupling of P and Q moves f by a factor e^(T d), but not out of [min f, e^T min f]; the
    largest gain of a move of length d lies below a line through what standing still gains, and lengths are w on average.
    Conditions: 0 < T, 0 <= w. f = the probability of one report, as a function of the item. Attained on a line of three points.
    Numerics: the two sides are sums of positive terms, compared with 1e-12 of them to spare; the last value that passed.
    Reference: docs/proofs/item-moves.md.
    """
    w = _validate_mean(mean)
    if not 0.0 < total < math.inf:
        raise InputError(f"total, the rate of a report times the diameter, must be a finite number > 0, got {total!r}.")
    if w == 0.0:
        return 0.0

    def certified(loss: float) -> bool:
        gain = math.expm1(loss)
        spread = math.log(gain) - math.log(w * total) - loss
        moved = 1.0 - spread / total
        if moved * total <= loss:  # the longest gain is that of a move by log(R)/T, which is none
            return True
        if moved >= 1.0:
            return gain * (1.0 - COMPARISON_SLACK) >= w * math.expm1(total)
        # e^-T times both sides
        return (1.0 + gain * math.exp(-total)) * (1.0 + COMPARISON_SLACK) <= gain * math.exp(-total) * ((1.0 / total + moved) / w)

    min_loss = round_up(total * w, 4)
    return round_up(min(total, last_certified(certified, min_loss, total, relative=1e-9)), 4) if min_loss < total else total


@dataclass(frozen=True)
class SubsampledProfile(PrivacyProfile):
    """A mechanism on `samples` items, run on that many draws from each user: the best of bounds (a), (b) and (c), at every distance.

    Beyond any radius it is evaluated at the distance itself; no group privacy is involved.
    """

    mechanism: PrivacyProfile
    samples: int
    diameter: float = 1.0
    bound: str = "sampled items"

    def __post_init__(self) -> None:
        validate_samples(self.samples), _validate_diameter(self.diameter)
        if not isinstance(self.mechanism, PrivacyProfile):
            raise NotCertified(f"a sampled profile needs a PrivacyProfile (an upper bound), got {type(self.mechanism).__name__}.")

    @property
    def _item_wise(self) -> ItemWiseProfile | None:
        """The mechanism, if it reports every drawn item by itself and is accounted for by its rate.

        Lines of single pairs of points say nothing about reports whose laws are mixtures.
        """
        item_profile = self.mechanism
        if not isinstance(item_profile, ItemWiseProfile) or item_profile.moves is not None:
            return None
        return item_profile if item_profile.shuffle.items == self.samples and item_profile.shuffle.diameter >= self.diameter else None

    def pure(self, distance: float) -> float:
        if validate_distance(distance) == 0.0:
            return 0.0
        whole, item_profile = self.mechanism.pure(self.diameter), self._item_wise
        return (
            whole if item_profile is None else min(whole, round_up(self.samples * report_loss(item_profile.total, self._mean(distance)), 4))
        )

    def _mean(self, distance: float) -> float:
        return min(1.0, round_up(validate_distance(distance) / self.diameter, 2))

    def delta(self, epsilon: float, distance: float) -> float:
        """min of (b), for a PureProfile, of (c), for reports of every item, and of (a): mechanism.delta(epsilon, q diameter) +
        exp(-s KL(q || r)) at the best q found."""
        epsilon = checked_epsilon(epsilon)
        if epsilon >= self.pure(distance):
            return 0.0
        mean = self._mean(distance)
        whole = self.mechanism.delta(epsilon, self.diameter)
        bounds = [1.0, whole, self._split(epsilon, mean, whole)]
        if isinstance(self.mechanism, PureProfile):
            bounds.append(expected_delta(epsilon, self.samples, mean, self.mechanism.pure(self.diameter)))
        if self._item_wise is not None:
            bounds.append(self._independent(self._item_wise, epsilon, mean))
        return min(bounds)

    @theorem("metricshuffle", "sampled items, report by report")
    def _independent(self, item_profile: ItemWiseProfile, epsilon: float, mean: float) -> float:
        """Bound (c): the flow of `CloneLines` for the time s tanh(log R/2), log R = `report_loss`; and s reports of log R each, composed.

        Statement: a user's s reports are independent draws from A_P = E_P A, two users' laws have ratios up to R both ways, and any other
        report's law contains e^-T (A_P + A_Q)/2, T = item rate * diameter, so each of the s draws is one move of `CloneLines` with
        h = tanh(log R/2). With s = 1 it is one move among clones, for which no flow is needed.
        Conditions: each drawn item is reported by itself, `samples` of them. Numerics: as for the flow and for clones, rounded up.
        Reference: docs/proofs/item-moves.md.
        """
        loss = report_loss(item_profile.total, mean)
        composed = PureProfile(1.0).delta(epsilon, round_up(self.samples * loss, 4))
        if self.samples == 1:
            return min(
                composed, clones_delta(ClonePair(loss, item_profile.total, item_profile.total), item_profile.shuffle.shuffled, epsilon)
            )
        return min(composed, item_profile.lines(epsilon).delta(round_up(self.samples * math.tanh(0.5 * loss), 32), epsilon))

    def _split(self, epsilon: float, mean: float, whole: float) -> float:
        """(a) where the two parts are about equal, which is at most twice the best: one rises in q and the other falls. Any q is valid.

        Samples farther apart than q are not a total loss: their divergence is at most `whole`, that at the diameter.
        """
        low, high, best = mean, 1.0, whole
        while high - low > SPLIT_TOLERANCE * high:
            level = 0.5 * (low + high)
            inside = self.mechanism.delta(epsilon, _of_diameter(level, self.diameter))
            missed = chernoff_tail(self.samples, mean, level) * whole
            best = min(best, round_up(inside + missed, 4))
            low, high = (level, high) if inside < missed else (low, level)
        return best

    def covers(self, epsilon: float, delta: float, distance: float, shape: Shape = "linear") -> bool:
        """Linear: delta(epsilon a / distance, b) <= delta on intervals [a, b] that together are [0, distance]; split where it fails.

        That suffices: delta falls in epsilon and, being about all distances up to b, rises in b. What still fails
        on an interval of a millionth of the distance is refused.
        """
        if shape == "flat" or delta == 0.0 or validate_distance(distance) == 0.0:
            return self.covers_at(epsilon if shape == "flat" or distance == 0.0 else 0.0, delta, distance)
        pending, seen = [(0.0, distance)], 0
        if not self.covers_at(epsilon, delta, distance):
            return False
        while pending:
            low, high = pending.pop()
            seen += 1
            if self.covers_at(round_down(epsilon * (low / distance), 8), delta, high):
                continue
            if high - low < MIN_INTERVAL_FRACTION * distance or seen > MAX_INTERVALS:
                return False
            middle = 0.5 * (low + high)
            pending += [(low, middle), (middle, high)]
        return True

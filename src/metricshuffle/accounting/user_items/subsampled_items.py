"""Profiles of users who draw s of their items at random, for mechanisms on s items.

Users draw with replacement from any number of items, or without replacement where all of them hold
the same public number of items.

Two users at earth mover's distance w draw s coupled pairs of items, so their samples are at
distance D, the mean of s distances in [0, diameter] with mean w. The bounds use nothing else about
D: the output of the mechanism on a random sample is a mixture over the pairs of samples, and the
hockey-stick divergence of mixtures is at most the mean of the divergences. Bound (a) splits the
samples at a distance q, bound (b) takes the mean over D for a pure mechanism. Where every drawn
item is reported by itself, the reports are independent draws from the mean law of the user's items,
and the laws of two users are close at every report, not only on average; bound (c) uses this. A
pure mechanism stays pure on drawn items, with a loss that decreases to 0 as w does; bound (d) uses
this (`drawn_loss`, `draw_rate`).

Notation: s = `samples`, r = `mean` = w divided by the diameter, q a distance divided by the
diameter, and KL(q || r) = q ln(q/r) + (1-q) ln((1-q)/(1-r)) the relative entropy of Bernoulli laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.accounting.shuffling.clone_bound import ClonePair
from metricshuffle.accounting.shuffling.clone_bound import delta_upper as clones_delta
from metricshuffle.accounting.user_items.item_reports import TYPICAL_DELTA, ItemWiseProfile
from metricshuffle.accounting.user_items.move_composition import certificate, concave_weight
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.numerics.rounding import ROUNDOFF, round_down, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    PureProfile,
    Shape,
    checked_delta,
    checked_epsilon,
    validate_distance,
)

MAX_SAMPLES = 10_000_000
SMALL_FACTORIALS = 16
LARGEST_EXPONENT = 700.0  # e to this power is still a double
TINY_LOSS = 1e-290  # smaller products lose digits
MIN_INTERVAL_FRACTION = 1e-6  # of the distance; failure on a shorter interval refuses the guarantee
MAX_INTERVALS = 2000
# relative; far above the rounding error of a comparison of two sums of a few positive terms
COMPARISON_SLACK = 1e-12
SPLIT_TOLERANCE = 1e-4  # relative: any level is valid, and near the crossing all are about as good


def validate_samples(samples: int) -> int:
    """Return samples; raise InputError unless it is an integer in 1..10^7."""
    if isinstance(samples, bool) or not isinstance(samples, int) or not 1 <= samples <= MAX_SAMPLES:
        raise InputError(
            "samples, the number of items every user draws, must be a whole number in "
            f"1..10^7, got {samples!r}."
        )
    return samples


def validate_public_items(items: int, samples: int) -> int:
    """Return items, the number that all users hold; raise InputError unless it is >= samples."""
    if isinstance(items, bool) or not isinstance(items, int) or items < samples:
        raise InputError(
            f"{argument('items')}, the public number of items that everybody holds, must be a "
            f"whole number of at least the {samples:,} that are drawn without replacement, got "
            f"{items!r}."
        )
    return items


def _validate_diameter(diameter: float) -> float:
    if isinstance(diameter, bool) or not (
        isinstance(diameter, int | float) and 0.0 < diameter < math.inf
    ):
        raise InputError(f"{argument('diameter')} must be a finite number > 0, got {diameter!r}.")
    return float(diameter)


def _of_diameter(part: float, diameter: float) -> float:
    """part * diameter, rounded up."""
    return diameter if part >= 1.0 else round_up(part * diameter, 2)


def _validate_mean(mean: float) -> float:
    return min(validate_distance(mean), 1.0)


@theorem("metricshuffle", "Chernoff bound of a sampled distance")
def chernoff_tail(samples: int, mean: float, level: float) -> float:
    """Bound exp(-s KL(q || r)) on P(D >= q) for the mean D of s variables; 1 for q <= r.

    The s = `samples` variables are independent in [0, 1] with mean <= r = `mean`; q = `level`.

    Statement: KL(q || r) = q ln(q/r) + (1-q) ln((1-q)/(1-r)).
    Conditions: 0 <= r, q <= 1.
    Numerics: logarithms by log1p of differences where q is near r; every term has an error of a few
    ulp, which s multiplies; rounded up.
    Reference: Hoeffding 1963, Theorem 1.
    """
    s = validate_samples(samples)
    r = _validate_mean(mean)
    q = validate_distance(level)
    if q <= r:
        return 1.0
    if r == 0.0 or q > 1.0:
        return 0.0
    hit_term = q * math.log1p((q - r) / r)
    miss_term = (1.0 - q) * math.log1p((r - q) / (1.0 - r)) if q < 1.0 else 0.0
    exponent = s * (hit_term + miss_term)
    slack = 16.0 * ROUNDOFF * s * (
        abs(hit_term) + abs(miss_term) + q + (1.0 - q) / (1.0 - r) * ROUNDOFF
    ) + 4.0 * ROUNDOFF * abs(exponent)
    return min(1.0, round_up(math.exp(-max(exponent - slack, 0.0)), 4) + 1e-320)


@theorem("metricshuffle", "KL radius of a sampled user")
def sampled_radius(samples: int, mean: float, delta: float) -> tuple[float, float]:
    """(c, missed): two users' samples lie within c, except with probability `missed` <= delta.

    The two users are at distance <= r = `mean` (diameter 1).

    Statement: c is the smallest q with exp(-s KL(q || r)) <= delta (see `chernoff_tail`). If this
    bound exceeds delta even at q = 1 (r^s > delta), c = 1 and nothing is missed, because no two
    samples are farther apart.
    Conditions: 0 <= delta < 1.
    Numerics: bisection on rounded-up tails, the last value that passed.
    Reference: replaces Imola24 Lemma 5.2, whose printed "3/8" must read 3/s; even then that radius
    is 2.8 times as large.
    """
    s = validate_samples(samples)
    r = _validate_mean(mean)
    allowed = checked_delta(delta)
    if r == 0.0:
        return 0.0, 0.0
    if r >= 1.0 or not chernoff_tail(s, r, 1.0) <= allowed:
        return 1.0, 0.0
    return last_certified(lambda q: chernoff_tail(s, r, q) <= allowed, r, 1.0), allowed


def _stirling_remainder(n: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bound on ln n! - ln(sqrt(2 pi n) (n/e)^n), n >= 1.

    The series alternates; small n are exact.
    """
    low = 1.0 / (12.0 * n) - 1.0 / (360.0 * n**3) + 1.0 / (1260.0 * n**5) - 1.0 / (1680.0 * n**7)
    high = low + 1.0 / (1680.0 * n**7)
    for k in range(1, SMALL_FACTORIALS):
        exact = (
            math.log(math.factorial(k))
            - (k + 0.5) * math.log(k)
            + k
            - 0.5 * math.log(2.0 * math.pi)
        )
        low = np.where(n == k, exact - 1e-13, low)
        high = np.where(n == k, exact + 1e-13, high)
    return low, high


@theorem("metricshuffle", "binomial masses, rounded up")
def _log_masses(samples: int, mean: float, first: int) -> Floats:
    """Upper bounds on ln P(J = j), j = first..s, J ~ Bin(s, r), 0 < first, r < 1.

    Here s = `samples` and r = `mean`.

    Statement: P(J = j) = sqrt(s / (2 pi j (s-j))) exp(-s KL(j/s || r)) times e to the power of the
    Stirling remainder of s minus those of j and of s - j (see `_stirling_remainder`).
    Numerics: each logarithm has an error of a few ulp, which its factor j or s - j multiplies; the
    exponent is raised by that.
    Reference: Loader 2000.
    """
    s = float(samples)
    r = mean
    j = np.arange(first, samples, dtype=np.float64)
    hit_term = j * np.log(j / (s * r))
    miss_term = (s - j) * (np.log1p(-j / s) - math.log1p(-r))
    remainder = (
        _stirling_remainder(np.array([s]))[1][0]
        - _stirling_remainder(j)[0]
        - _stirling_remainder(s - j)[0]
    )
    logs = (
        -hit_term - miss_term + remainder + 0.5 * (np.log(s / j) - np.log(2.0 * math.pi * (s - j)))
    )
    slack = 16.0 * ROUNDOFF * (np.abs(hit_term) + np.abs(miss_term) + s + 10.0)
    last = s * math.log(r)
    return np.append(logs + slack, last + 8.0 * ROUNDOFF * abs(last))


@theorem("metricshuffle", "expected profile of a sampled user, pure mechanisms")
def expected_delta(epsilon: float, samples: int, mean: float, cost: float) -> float:
    """Bound (b): E[(e^(cost J/s) - e^epsilon)_+] / (1 + e^epsilon), J ~ Bin(s, r).

    `cost` = rate * diameter, s = `samples` and r = `mean`.

    Statement: samples at distance D (in diameters) have their log likelihood ratio in [-cost D,
    cost D], so their divergence is at most (e^(cost D) - e^epsilon)_+ / (1 + e^(cost D)) <=
    (e^(cost D) - e^epsilon)_+ / (1 + e^epsilon). The last expression is convex and increasing in D.
    Of all means D of s independent variables in [0, 1] with mean r, the mean J/s of Bernoulli
    variables makes the expectation of a convex function largest (replace one variable after the
    other). As the function increases, a smaller mean than r gives a smaller expectation.
    Conditions: pure in both directions.
    Numerics: binomial masses rounded up, all terms of the tail summed.
    Reference: this docstring.
    """
    epsilon = checked_epsilon(epsilon)
    s = validate_samples(samples)
    r = _validate_mean(mean)
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
    """Upper bound log R on the log likelihood ratio of a report about a drawn item.

    The ratio is between two users at distance w = `mean` (diameter 1).

    Statement: let f(x) > 0 with f(x) <= e^(T d(x,x')) f(x') for all points x, x', where d(x,x') is
    their distance and T = `total`. Let P, Q be the laws of one drawn item of the two users, at
    earth mover's distance <= w, and E_P, E_Q means under them. Then E_P f <= R E_Q f for every R >=
    e^(Tw) with e^T + (R-1) <= (R-1) (1/T + d)/w, d = 1 - log((R-1)/(w T R))/T, or with T d <= log
    R; if this d exceeds 1, for every R >= 1 + w (e^T - 1). In particular for R = 1 + T w e^T, and
    for R = e^T.
    Proof: docs/proofs/item-moves.md. In short: a coupling of P and Q changes f by a factor of at
    most e^(T l) over a move of length l, but f stays in [min f, e^T min f]; the largest gain of a
    move of length l lies below a line through the gain of a move of length 0, and lengths are w on
    average.
    Conditions: 0 < T, 0 <= w. f = the probability of one report, as a function of the item.
    Attained on a line of three points.
    Numerics: the two sides are sums of positive terms, compared with a relative slack of 1e-12; the
    comparison with log R has a slack for the errors of its logarithms; the last value that passed.
    For T above 700 the result is T; for w T below 1e-290, 1e-290 e^T, which is not less than the
    bound w T e^T.
    Reference: docs/proofs/item-moves.md.
    """
    w = _validate_mean(mean)
    if not 0.0 < total < math.inf:
        raise InputError(
            "total, the rate of a report times the diameter, must be a finite number > 0, "
            f"got {total!r}."
        )
    if w == 0.0:
        return 0.0
    if total > LARGEST_EXPONENT:
        return total
    if w * total < TINY_LOSS:
        return min(total, round_up(TINY_LOSS * math.exp(total), 4))
    log_floor = math.log(w * total)

    def certified(loss: float) -> bool:
        gain = math.expm1(loss)
        log_gain = math.log(gain)
        spread = log_gain - log_floor - loss
        moved = 1.0 - spread / total
        slack = 16.0 * ROUNDOFF * (abs(log_gain) + abs(log_floor) + loss + total)
        # The gain of a move of length log(R)/T is at most the line of the proof, and the gain of a
        # longer move falls below it.
        if moved * total + slack <= loss:
            return True
        if moved >= 1.0:
            return gain * (1.0 - COMPARISON_SLACK) >= w * math.expm1(total)
        # e^-T times both sides
        return (1.0 + gain * math.exp(-total)) * (1.0 + COMPARISON_SLACK) <= gain * math.exp(
            -total
        ) * ((1.0 / total + moved) / w)

    min_loss = round_up(total * w, 4)
    return (
        round_up(min(total, last_certified(certified, min_loss, total, relative=1e-9)), 4)
        if min_loss < total
        else total
    )


@theorem("metricshuffle", "items drawn with replacement, pure mechanisms (D1)")
def drawn_loss(cost: float, samples: int, mean: float) -> float:
    """Upper bound S log R on the loss of a pure mechanism on S drawn items.

    S = `samples`, `cost` = rate * diameter of the mechanism, and `mean` = w / diameter, where w is
    the earth mover's distance of two users.

    Statement: let A be a mechanism on S items whose loss is at most rate times the earth mover's
    distance of the items, and let every user draw S of their items with replacement. Then the loss
    of A on the drawn items is at most S log R, where log R = report_loss(cost/S, w/diameter). This
    bound is at most S ln(1 + t (w/diameter) e^t) and at most rate e^t w, t = cost/S, and never
    above cost.
    Proof: docs/proofs/drawn-items.md. In short: the probability of any event, averaged over the
    other draws, is a function of one draw that changes by a factor of at most e^(t d/diameter) over
    a distance d, so that `report_loss` bounds the replacement of one user's law of that draw by the
    other's; the S draws are replaced one after the other.
    Conditions: A is pure in both directions at every distance. Users may hold any numbers of items,
    which need not be equal. Draws are secret, independent, and fresh in every round (the same draws
    in r rounds: one mechanism of r times the cost). People who move together: their losses add.
    Numerics: t and the product rounded up.
    Reference: docs/proofs/drawn-items.md; for pure mechanisms it replaces Imola24 Lemma 5.2 and
    Theorem 5.3.
    """
    s = validate_samples(samples)
    if not 0.0 < cost < math.inf:
        raise InputError(f"cost must be a finite number > 0, got {cost!r}.")
    return min(cost, round_up(s * report_loss(round_up(cost / s, 2), mean), 4))


@theorem("metricshuffle", "drawn items per unit of distance, with and without replacement (D1, D2)")
def draw_rate(rate: float, samples: int, diameter: float, *, items: int | None = None) -> float:
    """Upper bound rate e^t on the loss per unit of distance of a pure mechanism on S drawn items.

    S = `samples` and t = rate * diameter / S. `items` is None for draws with replacement, else the
    public number m of items of every user, of which S are drawn without replacement.

    Statement: under the conditions of `drawn_loss`, the loss at earth mover's distance w is at most
    rate e^t w for every w; it is about that for w near 0. The same holds for draws without
    replacement if all users hold the same public number m >= S of items; for m = S the rate
    itself.
    Proof: docs/proofs/drawn-items.md.
    Conditions: those of `drawn_loss`. Without replacement, m must be the same number for all users:
    for {a, b} and {a, a, b, b}, which are at distance 0, S = 2 and rate * diameter 6, the loss can
    be ln((e^3 + 2)/3) = 1.996. Keeping the first S items has no bound for the same reason.
    Numerics: rounded up.
    Reference: docs/proofs/drawn-items.md; answers the question at the end of Imola24 Section 5.
    """
    s = validate_samples(samples)
    if not 0.0 < rate < math.inf:
        raise InputError(f"{argument('rate')} must be a finite number > 0, got {rate!r}.")
    if items is not None and validate_public_items(items, s) == s:
        return rate
    exponent = round_up(rate * _validate_diameter(diameter) / s, 4)
    return round_up(rate * math.exp(exponent), 8) if exponent < LARGEST_EXPONENT else math.inf


@dataclass(frozen=True)
class SubsampledProfile(PrivacyProfile):
    """Best of bounds (a) to (d) for a mechanism run on `samples` items drawn from each user.

    The bounds are those of the module docstring. They hold at every distance: for samples farther
    apart than any chosen radius, the mechanism is evaluated at that larger distance; no group
    privacy is involved. With `public_items`, all users hold that many items and draw without
    replacement; bound (c) does not apply then. The coupled distances are then drawn without
    replacement, too. This increases neither the mean of a convex function nor bounds (a) and (b)
    (Hoeffding 1963, Theorem 4).
    """

    mechanism: PrivacyProfile
    samples: int
    diameter: float = 1.0
    bound: str = "sampled items"
    public_items: int | None = None

    def __post_init__(self) -> None:
        validate_samples(self.samples), _validate_diameter(self.diameter)
        if not isinstance(self.mechanism, PrivacyProfile):
            raise NotCertified(
                "a sampled profile needs a PrivacyProfile (an upper bound), got "
                f"{type(self.mechanism).__name__}."
            )
        if self.public_items is not None:
            validate_public_items(self.public_items, self.samples)

    @property
    def _item_reports(self) -> ItemWiseProfile | None:
        """The mechanism if it reports every drawn item by itself, else None."""
        item_profile = self.mechanism
        if not isinstance(item_profile, ItemWiseProfile):
            return None
        return (
            item_profile
            if item_profile.shuffle.items == self.samples
            and item_profile.shuffle.diameter >= self.diameter
            else None
        )

    @property
    def _independent_reports(self) -> ItemWiseProfile | None:
        """The mechanism if bound (c) applies to it, else None.

        Draws must be independent. Lines of single pairs of points do not apply to reports whose
        laws are mixtures, so the mechanism must be accounted by its rate.
        """
        item_profile = self._item_reports
        applies = (
            item_profile is not None and item_profile.moves is None and self.public_items is None
        )
        return item_profile if applies else None

    @property
    def _pure_rate(self) -> float | None:
        """Largest loss of the mechanism per unit of distance, rounded up; None if not known."""
        item_profile = self._item_reports
        if item_profile is not None:
            return round_up(item_profile.item_rate * self.samples, 2)
        return self.mechanism.rate if isinstance(self.mechanism, PureProfile) else None

    @property
    def _slope(self) -> float:
        """Largest loss on drawn items per unit of distance, rounded up; infinite if not known."""
        rate = self._pure_rate
        if rate is None:
            return math.inf
        return draw_rate(rate, self.samples, self.diameter, items=self.public_items)

    def pure(self, distance: float) -> float:
        """The mechanism's loss at the diameter, or bound (d) if that is smaller."""
        if validate_distance(distance) == 0.0:
            return 0.0
        whole = self.mechanism.pure(self.diameter)
        rate = self._pure_rate
        if rate is None:
            return whole
        linear = round_up(self._slope * distance, 2)
        if self.public_items is not None:
            return min(whole, linear)
        cost = round_up(rate * self.diameter, 2)
        return min(whole, linear, drawn_loss(cost, self.samples, self._mean(distance)))

    def _mean(self, distance: float) -> float:
        return min(1.0, round_up(validate_distance(distance) / self.diameter, 2))

    def delta(self, epsilon: float, distance: float) -> float:
        """Smallest of the bounds (a) to (d) that apply.

        Bound (a) is mechanism.delta(epsilon, q diameter) + exp(-s KL(q || r)) at the best q found
        (`_split`), (b) is for a PureProfile (`expected_delta`), (c) for reports of every item
        (`_independent`), (d) the delta of a pair whose loss is at most `pure`.
        """
        epsilon = checked_epsilon(epsilon)
        largest_loss = self.pure(distance)
        if epsilon >= largest_loss:
            return 0.0
        mean = self._mean(distance)
        whole = self.mechanism.delta(epsilon, self.diameter)
        bounds = [1.0, whole, self._split(epsilon, mean, whole)]
        if self._pure_rate is not None:
            bounds.append(PureProfile(1.0).delta(epsilon, largest_loss))
        if isinstance(self.mechanism, PureProfile):
            bounds.append(
                expected_delta(epsilon, self.samples, mean, self.mechanism.pure(self.diameter))
            )
        if self._independent_reports is not None:
            bounds.append(self._independent(self._independent_reports, epsilon, mean))
        return min(bounds)

    def delta_near(self, asked: float, epsilon: float, distance: float) -> float:
        """Bound (d) or (c) if it is at most `asked`, else the smallest of all bounds."""
        item_profile = self._independent_reports
        epsilon = checked_epsilon(epsilon)
        if item_profile is None or epsilon >= self.pure(distance):
            return self.delta(epsilon, distance)
        composed = PureProfile(1.0).delta(epsilon, self.pure(distance))
        if composed <= asked:
            return composed
        shuffled = self._independent(item_profile, epsilon, self._mean(distance), asked)
        return shuffled if shuffled <= asked else self.delta(epsilon, distance)

    @theorem("metricshuffle", "sampled items, report by report")
    def _independent(
        self, item_profile: ItemWiseProfile, epsilon: float, mean: float, enough: float = 0.0
    ) -> float:
        """Bound (c): the flow of `CloneLines` for the time s tanh(log R/2), log R = `report_loss`.

        Statement: let A be the law of a report as a function of the item, and P, Q the laws of one
        drawn item of two users. A user's s reports are independent draws from A_P = E_P A. The laws
        A_P and A_Q of two users have ratios up to R in both directions, and any other report's law
        contains e^-T (A_P + A_Q)/2, T = item rate * diameter. So each of the s draws is one move of
        `CloneLines` with h = tanh(log R/2). With s = 1 it is one move among clones, for which no
        flow is needed.
        Conditions: each drawn item is reported by itself, `samples` of them.
        Numerics: as for the flow and for clones, rounded up.
        Reference: docs/proofs/item-moves.md.
        """
        loss = report_loss(item_profile.total, mean)
        if self.samples == 1:
            return clones_delta(
                ClonePair(loss, item_profile.total, item_profile.total),
                item_profile.shuffle.shuffled,
                epsilon,
            )
        return item_profile.lines(epsilon, enough or TYPICAL_DELTA).delta(
            round_up(self.samples * math.tanh(0.5 * loss), 32), epsilon, enough
        )

    @theorem("metricshuffle", "sampled items at every distance")
    def _reports_cover(
        self, item_profile: ItemWiseProfile, epsilon: float, delta: float, distance: float
    ) -> bool:
        """Whether bound (c) keeps a linear guarantee at every distance up to `distance`.

        Statement: the time s h(w) of bound (c), h(w) = tanh(log R(w)/2), log R(w) = `report_loss`,
        satisfies the conditions of `concave_weight` with the slope T e^T/2 at 0, T = item rate *
        diameter, if R is the least bound that the proof of `report_loss` allows; the computed R is
        not less. So `certificate` applies to the concave bound.
        Proof: docs/proofs/drawn-items.md.
        Conditions: as for `_independent`.
        Numerics: rounded up; as for `certificate`.
        Reference: docs/proofs/drawn-items.md.
        """
        total = item_profile.total
        reach = self._mean(distance)
        rate = round_down(epsilon / distance * self.diameter, 8)
        steepest = round_up(0.5 * total * math.exp(min(total, LARGEST_EXPONENT)), 8)
        clock = concave_weight(
            self.samples,
            lambda mean: round_up(math.tanh(0.5 * report_loss(total, mean)), 8),
            steepest,
            reach,
        )
        lines = item_profile.lines(rate * reach, delta)
        return certificate(
            lambda time, at: lines.delta(time, at, delta), clock, rate, delta, reach
        ).kept

    def _split(self, epsilon: float, mean: float, whole: float) -> float:
        """Bound (a) where its two parts are about equal, which is at most twice the best.

        The delta of samples within q increases in q; the probability of samples farther apart
        decreases. Any q is valid. Samples farther apart than q are not lost completely: their
        divergence is at most `whole`, the delta at the diameter.
        """
        low = mean
        high = 1.0
        best = whole
        while high - low > SPLIT_TOLERANCE * high:
            level = 0.5 * (low + high)
            inside = self.mechanism.delta(epsilon, _of_diameter(level, self.diameter))
            missed = chernoff_tail(self.samples, mean, level) * whole
            best = min(best, round_up(inside + missed, 4))
            low, high = (level, high) if inside < missed else (low, level)
        return best

    def covers(
        self, epsilon: float, delta: float, distance: float, shape: Shape = "linear"
    ) -> bool:
        """As for every profile; a linear guarantee is checked on intervals [a, b] of the distance.

        It is kept with any delta, also 0, if `draw_rate` is at most epsilon / distance; with delta
        0 there is no other proof, as the loss near distance 0 is about `draw_rate` times the
        distance. With a delta above 0 it suffices that delta(epsilon a / distance, b) <= delta on
        intervals that together cover [0, distance]: delta decreases with epsilon, and increases
        with b, as it covers all distances up to b. An interval that fails is split; if an interval
        of a millionth of the distance still fails, the guarantee is refused.
        """
        if shape == "flat" or validate_distance(distance) == 0.0:
            return self.covers_at(epsilon, delta, distance)
        if round_up(self._slope * distance, 4) <= checked_epsilon(epsilon):
            return True
        if checked_delta(delta) == 0.0:
            return False
        if math.isfinite(self._slope) and PureProfile(self._slope).covers(epsilon, delta, distance):
            return True
        if self._independent_reports is not None:
            return self._reports_cover(self._independent_reports, epsilon, delta, distance)
        pending = [(0.0, distance)]
        seen = 0
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

"""Loss distributions that dominate a hockey-stick curve, and the delta of many rounds.

`composed_profile` uses them: `dominating_losses` turns the profile of one round into a loss
distribution, and `TotalLoss` convolves those of all rounds.

Notation: P and Q are the laws of the output of one round under two neighbouring data sets; x =
e^epsilon; h(x) = sup over sets S of P(S) - x Q(S) is the hockey-stick curve, also written h_PQ; the
loss is l = ln dP/dQ; K is the number of rounds. Tilting a distribution by theta multiplies the mass
of each loss l by e^(theta l).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from metricshuffle.citations import theorem
from metricshuffle.errors import NotCertified
from metricshuffle.numerics.rounding import ULP, round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.dominating_pair import fall_rates, lower_hull

# Outward rounding of every mass; it must cover a dozen roundings of 1.1e-16 each.
MASS_SLACK = 1e-13
# A curve that becomes convex when raised by this fraction of itself is convex up to rounding.
CONVEXITY_TOLERANCE = 1e-12
# Mass (of the tilted law) that the convolution may drop in each of the far tails; added to delta.
DROPPED_MASS = 1e-13
# Entries of a tilted law below this become 0 (they would be subnormal in a transform); their mass
# is added to delta.
MIN_TILTED_MASS = 1e-40
# Weights below e^-LOG_NEGLIGIBLE_WEIGHT are left out; that bound is added to the sum instead.
LOG_NEGLIGIBLE_WEIGHT = 60.0
# Up to this many losses the whole law is convolved; beyond, far tails are dropped.
MAX_WHOLE_LOSSES = 2**17
# Added to every delta, since a product that underflows is positive (0 would mean pure rounds).
UNDERFLOW_DELTA = 1e-320


@dataclass(frozen=True)
class LossDistribution:
    """Masses at the losses i * step, -n <= i <= n, and at an infinite loss; total mass >= 1."""

    step: float
    masses: Floats
    infinite: float

    @property
    def reach(self) -> float:
        return self.step * (len(self.masses) // 2)

    @property
    def total(self) -> float:
        """Total mass, with an error of at most a dozen roundings (numpy sums in pairs)."""
        return float(np.sum(self.masses)) + self.infinite

    @cached_property
    def _logs(self) -> tuple[Floats, Floats]:
        half = len(self.masses) // 2
        with np.errstate(divide="ignore"):
            return np.log(self.masses), np.arange(-half, half + 1.0) * self.step

    def _exponents(self, theta: float) -> Floats:
        logs, losses = self._logs
        return np.asarray(logs + theta * losses)

    def log_moment(self, theta: float) -> tuple[float, float, float]:
        """Return the log moment at theta and its first two derivatives.

        The log moment is ln sum of mass * e^(theta * loss) over finite losses.
        """
        exponents = self._exponents(theta)
        top = float(exponents.max())
        weights = np.exp(exponents - top)
        total = float(weights.sum())
        weighted = weights * self._logs[1]
        mean = float(weighted.sum()) / total
        return (
            top + math.log(total),
            mean,
            max(float((weighted * self._logs[1]).sum()) / total - mean * mean, 0.0),
        )

    def tilted(self, theta: float, log_moment: float) -> Floats:
        """Return mass * e^(theta * loss - log_moment), a probability vector.

        Entries below MIN_TILTED_MASS are set to 0.
        """
        vector = np.exp(self._exponents(theta) - log_moment)
        vector[vector < MIN_TILTED_MASS] = 0.0
        return vector


@theorem(
    "metricshuffle",
    "dominating pair of a sampled profile (Connect the Dots, Algorithm 1, in one-sided form)",
)
def dominating_losses(sampled: Floats, step: float) -> LossDistribution:
    """Return a loss distribution that dominates every pair whose curves lie below `sampled`.

    The curve is sampled at the epsilons 0, step, 2 step, ...

    Statement: let H_{e^epsilon}(P||Q) and H_{e^epsilon}(Q||P), the hockey-stick divergences, be <=
    sampled[i] for epsilon = i * step. With g(x) = (infinite mass) + sum of mass * (1 - x e^-loss)_+
    for the measure returned, h(x) <= g(x) for every x > 0 and both directions.
    Proof: docs/proofs/loss-distribution.md. In short: let x_i = e^(i step), i = 0..n, and u_i the
    least sampled value up to x_i. The curve g returned is, for 1 <= x <= x_n, the lower convex hull
    of (-1, 1) and the points (x_i, u_i), and the constant u_n beyond. A chord lies above the convex
    h, for ANY choice of vertices. An inequality that holds for x >= 1 in both directions also holds
    for x < 1, by the duality h_PQ(x) = 1 - x + x h_QP(1/x).
    Numerics: i * step must be exact (`grid_step`). Slopes are stored times x_n, so that none
    underflows; their RELATIVE error is a few ulps. They are raised by MASS_SLACK, and further where
    they would otherwise not decrease; both raise the curve. Masses are treated likewise.
    (dp-accounting's own routine loses 1e-16/step of absolute accuracy, and accepts curves that are
    not convex; hence the check of convexity.)
    Reference: Doroshenko et al. 2022, Algorithm 1 (`create_pmf_pessimistic_connect_dots` there).
    """
    points = len(sampled) - 1
    if not bool(np.all((sampled >= 0.0) & (sampled <= 1.0))):
        raise NotCertified(
            "a round's profile returned a delta outside [0, 1], so it cannot be composed; "
            "please report this as a bug."
        )
    u = np.minimum.accumulate(sampled)
    fall = fall_rates(step * np.arange(points + 1.0), u)
    # Curves of exact laws are convex up to rounding: then every point is a vertex, and raising the
    # slopes below corrects the rounding.
    every = np.arange(-1, points + 1)
    along = fall(every[:-1], every[1:])
    widths = np.exp((np.arange(points) - points) * step) * math.expm1(step)
    lifted = (np.maximum.accumulate(along[::-1])[::-1] - along)[1:] * widths
    convex = bool(
        np.all(np.cumsum(lifted[::-1])[::-1] <= CONVEXITY_TOLERANCE * u[:-1] + 1e-270)
        and along[0] >= np.max(along[1:], initial=0.0)
    )
    at, falls = (every, np.append(math.inf, along)) if convex else lower_hull(points + 1, fall)
    slopes = np.maximum.accumulate(np.append(falls[1:], 0.0)[::-1])[::-1] * (1.0 + MASS_SLACK)
    at = at[1:]
    lower = (slopes[:-1] - slopes[1:]) * (1.0 + MASS_SLACK)
    masses = np.zeros(2 * points + 1)
    masses[points - at] = lower * math.exp(-points * step)
    masses[points + at] = lower * np.exp((at - points) * step)
    masses[points] = 0.0
    infinite = float(u[-1])
    masses[points] = max(0.0, 1.0 - float(np.sum(masses)) - infinite) + 16.0 * ULP
    law = LossDistribution(step, masses, infinite)
    if not 1.0 <= law.total <= 1.0 + 1e-9:
        raise NotCertified(
            f"the loss distribution of a round has total mass {law.total!r} instead of 1; "
            "please report this as a bug."
        )
    return law


def grid_step(wanted: float) -> float:
    """Return `wanted` rounded up to 40 significant bits, so that i * step is exact for i < 2^13."""
    mantissa, exponent = math.frexp(wanted)
    return math.ldexp(math.ceil(math.ldexp(mantissa, 40)), exponent - 40)


@dataclass(frozen=True)
class _TiltedLoss:
    """Law of the total loss under a tilt, with bounds on FFT noise (2-norm) and dropped mass.

    law[i] is the mass of the total loss (first + i) times the step. `log_scale` is the sum of the
    log moments of all rounds at theta, and `relative` bounds the relative error of the masses and
    of their scale.
    """

    theta: float
    first: int
    law: Floats
    noise: float
    dropped: float
    log_scale: float
    relative: float


def _convolve(left: Floats, right: Floats) -> Floats:
    from scipy import fft

    length = len(left) + len(right) - 1
    size = fft.next_fast_len(length, real=True)
    return np.asarray(fft.irfft(fft.rfft(left, size) * fft.rfft(right, size), size)[:length])


def _convolve_rounds(vector: Floats, rounds: int) -> tuple[int, Floats, float]:
    """Return the law of the sum of `rounds` draws: first index, masses, bound on missing mass.

    Statement: each mass returned is that of a sum in a window, plus the masses of the sums outside
    that equal it modulo N (a transform of N cells is periodic). So no mass inside the window is too
    small, and the missing mass is the mass of the sums outside.
    Numerics: the missing mass is at most DROPPED_MASS on either side (`_farthest_sum`). In
    addition, `tilted` sets small entries to 0; a draw is one of these entries with a probability
    below MIN_TILTED_MASS times their number. The window is no narrower than the vector, so that the
    vector itself is not folded.
    """
    from scipy import fft

    if rounds == 1:
        return 0, vector, MIN_TILTED_MASS * len(vector)
    length = rounds * (len(vector) - 1) + 1
    lower = 0
    left_out = 0.0
    size = fft.next_fast_len(length, real=True)
    if length > MAX_WHOLE_LOSSES:
        lower = length - 1 - _farthest_sum(vector[::-1], rounds)
        upper = _farthest_sum(vector, rounds)
        narrow = fft.next_fast_len(max(upper - lower + 1, len(vector)), real=True)
        if narrow < size:
            size = narrow
            left_out = 2.0 * DROPPED_MASS
        else:
            lower = 0
    power = np.asarray(fft.irfft(fft.rfft(vector, size) ** rounds, size))
    return (
        lower,
        np.roll(power, -(lower % size))[:length],
        left_out + MIN_TILTED_MASS * rounds * len(vector),
    )


def _farthest_sum(vector: Floats, rounds: int) -> int:
    """Return an integer that the sum of `rounds` draws exceeds with probability <= DROPPED_MASS.

    Statement: P(sum >= x) <= E[e^(t draw)]^rounds e^(-t x), for every t > 0 (Chernoff); the best of
    a few t is taken, without those whose moment is not finite.
    Numerics: draws are counted from an integer near their mean, so that exponents are small. The
    logarithm of a moment has an absolute error below 1e-12 per round, which is less than 1e-6 over
    1e5 rounds; 1e-3 is added for it.
    """
    at = np.flatnonzero(vector)
    mass = vector[at]
    centre = round(float(np.sum(at * mass)))
    from_centre = (at - centre).astype(np.float64)
    variance = max(float(np.sum(from_centre**2 * mass)), 1e-6)
    depth = 1e-3 - math.log(DROPPED_MASS)
    # For normal sums the factor 1 is the best.
    tilts = math.sqrt(2.0 * depth / (rounds * variance)) * np.geomspace(0.125, 8.0, 25)
    with np.errstate(over="ignore"):
        moments = np.log(np.sum(np.exp(np.outer(tilts, from_centre)) * mass, axis=1))
    farthest = (rounds * moments + depth) / tilts
    best = float(np.min(farthest, where=np.isfinite(farthest), initial=math.inf))
    largest_sum = rounds * int(at[-1])
    return (
        min(largest_sum, rounds * centre + math.ceil(best)) if best < largest_sum else largest_sum
    )


class TotalLoss:
    """Total loss of several rounds, each a loss distribution (all of one step) with a count."""

    def __init__(self, parts: Sequence[tuple[LossDistribution, int]]) -> None:
        self.parts = tuple(parts)
        self.step = parts[0][0].step
        self.reach = max(law.reach for law, _ in parts)
        self.farthest = math.fsum(rounds * law.reach for law, rounds in parts) * (1.0 + 1e-15)
        certain = any(law.infinite >= 1.0 for law, _ in parts)
        none = (
            -math.inf
            if certain
            else math.fsum(rounds * math.log1p(-law.infinite) for law, rounds in parts)
        )
        # With total masses M_k >= 1: prod M_k - prod (M_k - infinite_k) <= prod M_k (1 - prod (1 -
        # infinite_k)).
        excess = math.fsum(rounds * (law.total - 1.0 + 16.0 * ULP) for law, rounds in parts)
        self.infinite = -math.expm1(none) * math.exp(excess) * (1.0 + 1e-12)
        self._tilts: list[_TiltedLoss] = []

    def _log_moment(self, theta: float) -> tuple[float, float, float]:
        terms = [(law.log_moment(theta), rounds) for law, rounds in self.parts]
        return (
            sum(k * term[0] for term, k in terms),
            sum(k * term[1] for term, k in terms),
            sum(k * term[2] for term, k in terms),
        )

    def _best_tilt(self, epsilon: float) -> tuple[float, float]:
        """Return a theta in [0, 500/reach] near the minimum of log moment - theta * epsilon.

        Returns theta and the value of log moment - theta * epsilon. ANY theta is valid; this one
        makes the bound sharp. Newton steps are taken until the remainder is about 0.05, and
        bisection where they leave the bracket.
        """
        theta = 0.0
        low = 0.0
        high = 500.0 / self.reach
        for _ in range(40):
            moment, mean, variance = self._log_moment(theta)
            if mean >= epsilon and theta == 0.0:
                break
            low, high = (theta, high) if mean < epsilon else (low, theta)
            if (epsilon - mean) ** 2 <= 0.1 * variance or high - low <= 1e-3 * high:
                break
            newton = theta + (epsilon - mean) / variance if variance > 0.0 else math.inf
            theta = newton if low < newton < high else 0.5 * (low + high)
        return theta, moment - theta * epsilon

    def _tilt(self, theta: float) -> _TiltedLoss:
        powers: list[Floats] = []
        first = 0
        norms = 0.0
        log_scale = 0.0
        relative = 1e-11
        dropped = 0.0
        for law, rounds in self.parts:
            moment = law.log_moment(theta)[0]
            vector = law.tilted(theta, moment)
            lower, power, left_out = _convolve_rounds(vector, rounds)
            powers.append(power)
            dropped += left_out
            first += lower - rounds * (len(law.masses) // 2)
            norms += (rounds + 3) * float(np.linalg.norm(vector))
            log_scale += rounds * moment
            relative += 8.0 * ULP * rounds * (theta * law.reach + abs(moment) + 20.0)
        total = reduce(_convolve, powers)
        noise = 64.0 * ULP * math.log2(len(total) + 2) * norms
        return _TiltedLoss(theta, first, total, noise, dropped, log_scale, relative)

    def _choose_tilt(self, epsilon: float) -> _TiltedLoss:
        wanted, best = self._best_tilt(epsilon)
        for tilt in self._tilts:
            if tilt.log_scale - tilt.theta * epsilon <= best + 3.0:
                return tilt
        # A few tilts serve every epsilon; each may take megabytes, so only the latest are cached.
        made = self._tilt(wanted)
        self._tilts = [made, *self._tilts[:5]]
        return made

    @theorem("metricshuffle", "tilted convolution of loss distributions with a noise bound")
    def delta(self, epsilon: float) -> float:
        """Upper bound on the hockey-stick divergence of all rounds together.

        Statement: with measures mu_k that dominate the rounds k = 1..K for every history, the
        adaptive composition has delta <= F = (mass of a total loss that is infinite) + integral of
        (1 - e^(epsilon - l))_+ d(mu_1 * ... * mu_K)(l) over finite losses l, * denoting
        convolution. (F is monotone in each mu_k: with the others fixed it is a mixture of the
        curves g of mu_k (see `dominating_losses`), so a larger curve gives a larger F; this
        includes masses above 1 in total.)

        Numerics: a convolution by FFT has an ABSOLUTE error (about 1e-15 per mass), which would put
        a floor under delta. So the masses are tilted first: for every theta >= 0

            integral = e^(L - theta epsilon) * sum over l > epsilon of
                       (1 - e^(epsilon - l)) e^(-theta (l - epsilon)) nu(l),

        nu the convolution of the tilted probability vectors v, L the sum of their log moments. At
        the minimiser of L - theta epsilon the factor in front is of the order of delta itself, so
        the error becomes RELATIVE. Two terms are added to the sum. The first is the 2-norm of the
        weights (the factors of nu) times a bound on the 2-norm of the FFT noise, 64 ulp log2(N) sum
        (rounds + 3) |v|_2, N the length of nu (one transform errs by at most a few ulp log2(N) in
        relative 2-norm, the power multiplies that by `rounds` because |v|_1 = 1, and |v * w|_2 <=
        |v|_2 for probability vectors v and w; the factor 64 is the margin). The second is the mass
        that `_convolve_rounds` leaves out in the far tails. Losses are rounded up; weights below
        e^-60 are replaced by e^-60. The last sum, of N terms, is off by at most N ulp, relatively.
        Reference: Zhu, Dong, Wang 2022, Theorem 10 (adaptive composition of dominating pairs).
        """
        if epsilon >= self.farthest:
            return min(1.0, self.infinite)
        tilt = self._choose_tilt(epsilon)
        start = max(0, math.floor(epsilon / self.step) - 1 - tilt.first)
        # Beyond `stop` all weights together add at most e^-LOG_NEGLIGIBLE_WEIGHT.
        stop = (
            min(
                len(tilt.law),
                start + 2 + math.ceil(LOG_NEGLIGIBLE_WEIGHT / (tilt.theta * self.step)),
            )
            if tilt.theta > 0.0
            else len(tilt.law)
        )
        losses = np.arange(start + tilt.first, stop + tilt.first) * round_up(self.step, 4)
        gaps = np.maximum(losses - epsilon, 0.0)
        weights = -np.expm1(-gaps) * np.exp(-tilt.theta * gaps)
        left_out = tilt.dropped + (
            math.exp(-LOG_NEGLIGIBLE_WEIGHT) if stop < len(tilt.law) else 0.0
        )
        inside = (
            float(np.sum(weights * tilt.law[start:stop]))
            + math.sqrt(float(np.sum(weights * weights))) * tilt.noise
            + left_out
        )
        relative = (
            tilt.relative
            + ULP * len(weights)
            + 8.0 * ULP * (abs(tilt.log_scale) + tilt.theta * epsilon)
        )
        finite = (
            math.exp(min(tilt.log_scale - tilt.theta * epsilon, 700.0))
            * max(inside, 0.0)
            * (1.0 + relative)
        )
        return min(1.0, self.infinite + finite + UNDERFLOW_DELTA)

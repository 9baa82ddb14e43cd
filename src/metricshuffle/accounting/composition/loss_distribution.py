"""From an upper bound on a hockey-stick curve to the delta of many rounds.

Notation: x = e^epsilon; h(x) = sup_S P(S) - x Q(S), the hockey-stick curve of the outputs
P, Q of one round; a loss l = ln dP/dQ; K rounds; theta a tilt.
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

# Outward rounding of every mass; a dozen roundings of 1.1e-16 each are what it has to cover.
MASS_SLACK = 1e-13
# A curve that becomes convex by raising it by no more than this, relatively, is not convex by rounding only.
CONVEXITY_TOLERANCE = 1e-12
# Mass (of the tilted law) that the convolution may drop in each of the far tails; added to delta.
DROPPED_MASS = 1e-13
# Entries of a tilted law below this become 0 (they would be subnormal in a transform); what they weigh is added to delta.
MIN_TILTED_MASS = 1e-40
# e^-FAINT times the whole (tilted) law is added where weights smaller than that are left out.
LOG_NEGLIGIBLE_WEIGHT = 60.0
# Up to this many losses their law is convolved whole; beyond, far tails are dropped.
MAX_WHOLE_LOSSES = 2**17
# Added to every delta: a product that underflows is positive all the same (0 would say that the rounds are pure).
UNDERFLOW_DELTA = 1e-320


@dataclass(frozen=True)
class LossDistribution:
    """Mass on the losses i * step, -n <= i <= n, and on an infinite loss; total mass >= 1."""

    step: float
    masses: Floats
    infinite: float

    @property
    def reach(self) -> float:
        return self.step * (len(self.masses) // 2)

    @property
    def total(self) -> float:
        """To a dozen roundings (numpy sums in pairs)."""
        return float(np.sum(self.masses)) + self.infinite

    @cached_property
    def _logs(self) -> tuple[Floats, Floats]:
        """The logarithms of the masses, and their losses."""
        half = len(self.masses) // 2
        with np.errstate(divide="ignore"):
            return np.log(self.masses), np.arange(-half, half + 1.0) * self.step

    def _exponents(self, theta: float) -> Floats:
        logs, losses = self._logs
        return np.asarray(logs + theta * losses)

    def log_moment(self, theta: float) -> tuple[float, float, float]:
        """(ln sum of mass * e^(theta * loss) over finite losses, its derivative in theta, its second one)."""
        exponents = self._exponents(theta)
        top = float(exponents.max())
        weights = np.exp(exponents - top)
        total = float(weights.sum())
        weighted = weights * self._logs[1]
        mean = float(weighted.sum()) / total
        return top + math.log(total), mean, max(float((weighted * self._logs[1]).sum()) / total - mean * mean, 0.0)

    def tilted(self, theta: float, log_moment: float) -> Floats:
        """mass * e^(theta * loss - log_moment): a probability vector, without what is below MIN_TILTED_MASS."""
        vector = np.exp(self._exponents(theta) - log_moment)
        vector[vector < MIN_TILTED_MASS] = 0.0
        return vector


@theorem("metricshuffle", "dominating pair of a sampled profile (Connect the Dots, Algorithm 1, in one-sided form)")
def dominating_losses(sampled: Floats, step: float) -> LossDistribution:
    """A loss distribution that dominates every pair whose curves lie below `sampled`, at the epsilons 0, step, 2 step, ...

    Statement: let H_{e^epsilon}(P||Q) and H_{e^epsilon}(Q||P) be <= sampled[i] for
    epsilon = i * step. With g(x) = (infinite mass) + sum of mass * (1 - x e^-loss)_+ for the
    measure returned, h(x) <= g(x) for every x > 0 and both directions.

    Proof: docs/proofs/loss-distribution.md. In short: the curve returned is, for x >= 1, the lower convex hull of (-1, 1) and the
    sampled points (x_i, u_i), u_i the least curve value up to x_i, and the constant u_n beyond; a chord lies above the convex h, for
    ANY choice of vertices; what holds for x >= 1 in both directions holds for x < 1 by the duality h_PQ(x) = 1 - x + x h_QP(1/x).
    Numerics: i * step must be exact (`grid_step`). Slopes are kept times x_n, so that none underflows; they are correct to a few ulps
    RELATIVE to themselves, raised by MASS_SLACK and made decreasing by raising, which raises the curve. Masses likewise. (The library's
    own routine loses 1e-16/step of absolute accuracy, and accepts curves that are not convex. Hence the check below.)
    Reference: Doroshenko et al. 2022, Algorithm 1 (`create_pmf_pessimistic_connect_dots` there).
    """
    points = len(sampled) - 1
    if not bool(np.all((sampled >= 0.0) & (sampled <= 1.0))):
        raise NotCertified("a round's profile returned a delta outside [0, 1], so it cannot be composed; please report this as a bug.")
    u = np.minimum.accumulate(sampled)
    fall = fall_rates(step * np.arange(points + 1.0), u)
    # Convex up to roundings, as curves of exact laws are: then every point is a vertex, and raising the slopes below does the rest.
    every = np.arange(-1, points + 1)
    along = fall(every[:-1], every[1:])
    widths = np.exp((np.arange(points) - points) * step) * math.expm1(step)
    lifted = (np.maximum.accumulate(along[::-1])[::-1] - along)[1:] * widths
    convex = bool(
        np.all(np.cumsum(lifted[::-1])[::-1] <= CONVEXITY_TOLERANCE * u[:-1] + 1e-270) and along[0] >= np.max(along[1:], initial=0.0)
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
        raise NotCertified(f"the loss distribution of a round has total mass {law.total!r} instead of 1; please report this as a bug.")
    return law


def grid_step(wanted: float) -> float:
    """`wanted` rounded up to 40 significant bits, so that i * step is exact for i < 2^13."""
    mantissa, exponent = math.frexp(wanted)
    return math.ldexp(math.ceil(math.ldexp(mantissa, 40)), exponent - 40)


@dataclass(frozen=True)
class _TiltedLoss:
    """Law of the total loss under the tilt, with a bound on the noise (in the 2-norm) and on what was dropped."""

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
    """The law of the sum of `rounds` draws: where it starts, its masses, and how much of it may be missing.

    Statement: masses of the sums in a window, plus, somewhere in it, of those outside (a transform of N cells is periodic: it adds up
    the sums that are the same modulo N). So no mass inside is too small, and what is missing is that of the sums outside.
    Numerics: that is at most DROPPED_MASS on either side (`_farthest_sum`), and any draw is one of those left out of `tilted` with a
    probability below MIN_TILTED_MASS times their number. The window is no narrower than the vector, which is then not folded.
    """
    from scipy import fft

    if rounds == 1:
        return 0, vector, MIN_TILTED_MASS * len(vector)
    length, lower, left_out = rounds * (len(vector) - 1) + 1, 0, 0.0
    size = fft.next_fast_len(length, real=True)
    if length > MAX_WHOLE_LOSSES:
        lower = length - 1 - _farthest_sum(vector[::-1], rounds)
        upper = _farthest_sum(vector, rounds)
        narrow = fft.next_fast_len(max(upper - lower + 1, len(vector)), real=True)
        if narrow < size:
            size, left_out = narrow, 2.0 * DROPPED_MASS
        else:
            lower = 0
    power = np.asarray(fft.irfft(fft.rfft(vector, size) ** rounds, size))
    return lower, np.roll(power, -(lower % size))[:length], left_out + MIN_TILTED_MASS * rounds * len(vector)


def _farthest_sum(vector: Floats, rounds: int) -> int:
    """A whole number that the sum of `rounds` draws exceeds with probability DROPPED_MASS at most.

    Statement: P(sum >= x) <= E[e^(t draw)]^rounds e^(-t x), for every t > 0 (Chernoff); the best of a few t is taken. One whose
    moment is no number is not.
    Numerics: draws are counted from a whole number near their mean, so that exponents are small; those of a moment, of absolute error
    below 1e-12 of a round, are off by less than 1e-6 over 1e5 rounds, for which 1e-3 is added.
    """
    at = np.flatnonzero(vector)
    mass = vector[at]
    centre = round(float(np.sum(at * mass)))
    from_centre = (at - centre).astype(np.float64)
    variance = max(float(np.sum(from_centre**2 * mass)), 1e-6)
    depth = 1e-3 - math.log(DROPPED_MASS)
    # For normal sums the best t is this one times 1.
    tilts = math.sqrt(2.0 * depth / (rounds * variance)) * np.geomspace(0.125, 8.0, 25)
    with np.errstate(over="ignore"):
        moments = np.log(np.sum(np.exp(np.outer(tilts, from_centre)) * mass, axis=1))
    farthest = (rounds * moments + depth) / tilts
    best = float(np.min(farthest, where=np.isfinite(farthest), initial=math.inf))
    largest_sum = rounds * int(at[-1])
    return min(largest_sum, rounds * centre + math.ceil(best)) if best < largest_sum else largest_sum


class TotalLoss:
    """The delta of rounds with the given loss distributions (all of one step), each repeated."""

    def __init__(self, parts: Sequence[tuple[LossDistribution, int]]) -> None:
        self.parts = tuple(parts)
        self.step = parts[0][0].step
        self.reach = max(law.reach for law, _ in parts)
        self.farthest = math.fsum(rounds * law.reach for law, rounds in parts) * (1.0 + 1e-15)
        certain = any(law.infinite >= 1.0 for law, _ in parts)
        none = -math.inf if certain else math.fsum(rounds * math.log1p(-law.infinite) for law, rounds in parts)
        # With total masses M_k >= 1: prod M_k - prod (M_k - infinite_k) <= prod M_k (1 - prod (1 - infinite_k)).
        excess = math.fsum(rounds * (law.total - 1.0 + 16.0 * ULP) for law, rounds in parts)
        self.infinite = -math.expm1(none) * math.exp(excess) * (1.0 + 1e-12)
        self._tilts: list[_TiltedLoss] = []

    def _log_moment(self, theta: float) -> tuple[float, float, float]:
        terms = [(law.log_moment(theta), rounds) for law, rounds in self.parts]
        return sum(k * term[0] for term, k in terms), sum(k * term[1] for term, k in terms), sum(k * term[2] for term, k in terms)

    def _best_tilt(self, epsilon: float) -> tuple[float, float]:
        """A near-minimiser theta of log moment - theta * epsilon, in [0, 500/reach], and that least value.

        ANY theta is valid, this one is sharp: by Newton's steps until the rest is about 0.05, halving where they lead out of what is left.
        """
        theta, low, high = 0.0, 0.0, 500.0 / self.reach
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
        first, norms, log_scale, relative, dropped = 0, 0.0, 0.0, 1e-11, 0.0
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
        # A few tilts serve every epsilon; each may hold megabytes, so only the latest are kept.
        made = self._tilt(wanted)
        self._tilts = [made, *self._tilts[:5]]
        return made

    @theorem("metricshuffle", "tilted convolution of loss distributions with a noise bound")
    def delta(self, epsilon: float) -> float:
        """Upper bound on the hockey-stick divergence of all rounds together.

        Statement: with measures mu_k that dominate the rounds for every history, the adaptive
        composition has delta <= F = (mass of a total loss that is infinite) + integral of
        (1 - e^(epsilon - l))_+ d(mu_1 * ... * mu_K)(l) over finite losses.
        (F is monotone in each mu: with the others fixed it is a mixture of the curves g of mu_k,
        so a larger curve gives a larger F; masses above 1 in total are no exception.)

        Numerics: a convolution by FFT has an ABSOLUTE error (about 1e-15 per mass), which
        would put a floor under delta. So the masses are tilted first: for every theta >= 0
            integral = e^(L - theta epsilon) * sum over l > epsilon of
                       (1 - e^(epsilon - l)) e^(-theta (l - epsilon)) nu(l),
        nu the convolution of the tilted probability vectors v, L the sum of their log moments.
        At the minimiser of L - theta epsilon the factor in front is of the order of delta itself,
        so the error becomes RELATIVE. What is added inside the bracket: the 2-norm of the weights
        times a bound on the 2-norm of the FFT noise, 64 ulp log2(N) sum (rounds + 3) |v|_2 (one
        transform errs by at most a few ulp log2(N) in relative 2-norm, the power multiplies
        that by `rounds` because |v|_1 = 1, and |v * w|_2 <= |v|_2; the factor 64 is the margin);
        and the mass that `_convolve_rounds` leaves out in the far tails. Losses are rounded up; those whose weight is below e^-60 count
        with that.
        The last sum, of N terms, is off by at most N ulp, relatively.
        Reference: Zhu, Dong, Wang 2022, Theorem 10 (adaptive composition of dominating pairs).
        """
        if epsilon >= self.farthest:
            return min(1.0, self.infinite)
        tilt = self._choose_tilt(epsilon)
        start = max(0, math.floor(epsilon / self.step) - 1 - tilt.first)
        # Farther out than that weights are below e^-FAINT, and so is all they add.
        stop = (
            min(len(tilt.law), start + 2 + math.ceil(LOG_NEGLIGIBLE_WEIGHT / (tilt.theta * self.step)))
            if tilt.theta > 0.0
            else len(tilt.law)
        )
        losses = np.arange(start + tilt.first, stop + tilt.first) * round_up(self.step, 4)
        gaps = np.maximum(losses - epsilon, 0.0)
        weights = -np.expm1(-gaps) * np.exp(-tilt.theta * gaps)
        left_out = tilt.dropped + (math.exp(-LOG_NEGLIGIBLE_WEIGHT) if stop < len(tilt.law) else 0.0)
        inside = float(np.sum(weights * tilt.law[start:stop])) + math.sqrt(float(np.sum(weights * weights))) * tilt.noise + left_out
        relative = tilt.relative + ULP * len(weights) + 8.0 * ULP * (abs(tilt.log_scale) + tilt.theta * epsilon)
        finite = math.exp(min(tilt.log_scale - tilt.theta * epsilon, 700.0)) * max(inside, 0.0) * (1.0 + relative)
        return min(1.0, self.infinite + finite + UNDERFLOW_DELTA)

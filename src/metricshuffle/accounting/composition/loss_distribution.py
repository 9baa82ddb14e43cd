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
from metricshuffle.errors import NotCertified, require
from metricshuffle.numerics.rounding import ULP, raised
from metricshuffle.numerics.types import Floats

# Outward rounding of every mass; a dozen roundings of 1.1e-16 each are what it has to cover.
SLACK = 1e-13
# A curve that becomes convex by raising it by no more than this, relatively, is not convex by rounding only.
ROUGHNESS = 1e-12
# Mass (of the tilted law) that the convolution may drop in the far tails; added to delta.
DROPPED = 1e-13
# e^-FAINT times the whole (tilted) law is added where weights smaller than that are left out.
FAINT = 60.0
# Up to this many losses their law is convolved whole; beyond, far tails are dropped.
WHOLE = 2**17
# Added to every delta: a product that underflows is positive all the same (0 would say that the rounds are pure).
UNDERFLOW = 1e-320


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

    def log_moment(self, theta: float) -> tuple[float, float]:
        """(ln sum of mass * e^(theta * loss) over finite losses, its derivative in theta)."""
        exponents = self._exponents(theta)
        top = float(exponents.max())
        weights = np.exp(exponents - top)
        total = float(weights.sum())
        return top + math.log(total), float(np.sum(weights * self._logs[1])) / total

    def tilted(self, theta: float, log_moment: float) -> Floats:
        """mass * e^(theta * loss - log_moment): a probability vector.

        Entries below 1e-40 become 0: over 1e9 cells and rounds they weigh nothing next to
        DROPPED, and they make the library's Chernoff bounds overflow.
        """
        vector = np.exp(self._exponents(theta) - log_moment)
        vector[vector < 1e-40] = 0.0
        return vector


@theorem("metricshuffle", "dominating pair of a sampled profile (Connect the Dots, Algorithm 1, in one-sided form)")
def dominating(sampled: Floats, step: float) -> LossDistribution:
    """A loss distribution that dominates every pair whose curves lie below `sampled`, at the epsilons 0, step, 2 step, ...

    Statement: let H_{e^epsilon}(P||Q) and H_{e^epsilon}(Q||P) be <= sampled[i] for
    epsilon = i * step. With g(x) = (infinite mass) + sum of mass * (1 - x e^-loss)_+ for the
    measure returned, h(x) <= g(x) for every x > 0 and both directions.

    Proof: docs/proofs/loss-distribution.md. In short: the curve returned is, for x >= 1, the lower convex hull of (-1, 1) and the
    sampled points (x_i, u_i), u_i the least curve value up to x_i, and the constant u_n beyond; a chord lies above the convex h, for
    ANY choice of vertices; what holds for x >= 1 in both directions holds for x < 1 by the duality h_PQ(x) = 1 - x + x h_QP(1/x).
    Numerics: i * step must be exact (`grid_step`). Slopes are kept times x_n, so that none underflows; they are correct to a few ulps
    RELATIVE to themselves, raised by SLACK and made decreasing by raising, which raises the curve. Masses likewise. (The library's
    own routine loses 1e-16/step of absolute accuracy, and accepts curves that are not convex. Hence the check below.)
    Reference: Doroshenko et al. 2022, Algorithm 1 (`create_pmf_pessimistic_connect_dots` there).
    """
    points = len(sampled) - 1
    if not bool(np.all((sampled >= 0.0) & (sampled <= 1.0))):
        raise NotCertified("a round's profile returned a delta outside [0, 1], so it cannot be composed; please report this as a bug.")
    u = np.minimum.accumulate(sampled).tolist()

    def fall(a: int, b: int) -> float:
        """x_n * B between the vertices a < b; vertex -1 is the point (-1, 1)."""
        if a < 0:
            return float((1.0 - u[b]) * math.exp((points - b) * step) / (1.0 + math.exp(-b * step)))
        return float((u[a] - u[b]) * math.exp((points - a) * step) / math.expm1((b - a) * step))

    # Convex up to roundings, as curves of exact laws are: then every point is a vertex, and raising the slopes below does the rest.
    widths = np.exp((np.arange(points) - points) * step) * math.expm1(step)
    along = np.append(fall(-1, 0), -np.diff(u) / widths)
    lifted = (np.maximum.accumulate(along[::-1])[::-1] - along)[1:] * widths
    convex = bool(
        np.all(np.cumsum(lifted[::-1])[::-1] <= ROUGHNESS * np.array(u[:-1]) + 1e-270) and along[0] >= np.max(along[1:], initial=0.0)
    )
    vertices, falls = ([-1, *range(points + 1)], [math.inf, *along]) if convex else ([-1], [math.inf])
    for b in () if convex else range(points + 1):
        slope = fall(vertices[-1], b)
        while len(vertices) > 1 and slope >= falls[-1]:
            vertices.pop()
            falls.pop()
            slope = fall(vertices[-1], b)
        vertices.append(b)
        falls.append(slope)
    slopes = np.maximum.accumulate(np.array([*falls[1:], 0.0])[::-1])[::-1] * (1.0 + SLACK)
    at = np.array(vertices[1:])
    lower = (slopes[:-1] - slopes[1:]) * (1.0 + SLACK)
    masses = np.zeros(2 * points + 1)
    masses[points - at] = lower * math.exp(-points * step)
    masses[points + at] = lower * np.exp((at - points) * step)
    masses[points] = 0.0
    infinite = u[-1]
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
class _Tilted:
    """Law of the total loss under the tilt, with a bound on the noise (in the 2-norm) and on what was dropped."""

    theta: float
    first: int
    law: Floats
    noise: float
    dropped: float
    log_scale: float
    relative: float


def _repeated(vector: Floats, rounds: int) -> tuple[int, Floats, float]:
    """The law of the sum of `rounds` draws: where it starts, its masses, and how much of it may be missing."""
    if rounds == 1:
        return 0, vector, 0.0
    length = rounds * (len(vector) - 1) + 1
    if length <= WHOLE:
        from scipy import fft

        size = fft.next_fast_len(length, real=True)
        return 0, np.asarray(fft.irfft(fft.rfft(vector, size) ** rounds, size)[:length]), 0.0
    lower, power = require("dp_accounting.pld.common", "compose").self_convolve(vector, rounds, DROPPED)
    return lower, np.asarray(power), 2.0 * DROPPED


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
        self._tilts: list[_Tilted] = []

    def _log_moment(self, theta: float) -> tuple[float, float]:
        terms = [(law.log_moment(theta), rounds) for law, rounds in self.parts]
        return sum(k * term[0] for term, k in terms), sum(k * term[1] for term, k in terms)

    def _best_tilt(self, epsilon: float) -> float:
        """A near-minimiser of log moment - theta * epsilon, in [0, 500/reach]; ANY value is valid, this one is sharp."""
        if self._log_moment(0.0)[1] >= epsilon:
            return 0.0
        low, high = 0.0, 1.0 / self.reach
        while high * self.reach < 500.0 and self._log_moment(high)[1] < epsilon:
            low, high = high, 2.0 * high
        for _ in range(8):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._log_moment(middle)[1] < epsilon else (low, middle)
        return low

    def _tilt(self, theta: float) -> _Tilted:
        from scipy.signal import fftconvolve

        powers: list[Floats] = []
        first, norms, log_scale, relative, dropped = 0, 0.0, 0.0, 1e-11, 0.0
        for law, rounds in self.parts:
            moment, _ = law.log_moment(theta)
            vector = law.tilted(theta, moment)
            lower, power, left_out = _repeated(vector, rounds)
            powers.append(power)
            dropped += left_out
            first += lower - rounds * (len(law.masses) // 2)
            norms += (rounds + 3) * float(np.linalg.norm(vector))
            log_scale += rounds * moment
            relative += 8.0 * ULP * rounds * (theta * law.reach + abs(moment) + 20.0)
        total = reduce(fftconvolve, powers)
        noise = 64.0 * ULP * math.log2(len(total) + 2) * norms
        return _Tilted(theta, first, total, noise, dropped, log_scale, relative)

    def _chosen_tilt(self, epsilon: float) -> _Tilted:
        wanted = self._best_tilt(epsilon)
        best = self._log_moment(wanted)[0] - wanted * epsilon
        for tilt in self._tilts:
            if tilt.log_scale - tilt.theta * epsilon <= best + 3.0:
                return tilt
        # A few tilts serve every epsilon; each may hold megabytes, so only the latest are kept.
        self._tilts = [self._tilt(wanted), *self._tilts[:5]]
        return self._tilts[0]

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
        and the mass that `self_convolve` leaves out by its Chernoff bounds, twice over (the wrapped
        part of it lands inside, which only adds). Losses are rounded up; those whose weight is below e^-60 count with that.
        The last sum, of N terms, is off by at most N ulp, relatively.
        Reference: Zhu, Dong, Wang 2022, Theorem 10 (adaptive composition of dominating pairs).
        """
        if epsilon >= self.farthest:
            return min(1.0, self.infinite)
        tilt = self._chosen_tilt(epsilon)
        start = max(0, math.floor(epsilon / self.step) - 1 - tilt.first)
        # Farther out than that weights are below e^-FAINT, and so is all they add.
        stop = min(len(tilt.law), start + 2 + math.ceil(FAINT / (tilt.theta * self.step))) if tilt.theta > 0.0 else len(tilt.law)
        losses = np.arange(start + tilt.first, stop + tilt.first) * raised(self.step, 4)
        gaps = np.maximum(losses - epsilon, 0.0)
        weights = -np.expm1(-gaps) * np.exp(-tilt.theta * gaps)
        left_out = tilt.dropped + (math.exp(-FAINT) if stop < len(tilt.law) else 0.0)
        inside = float(np.sum(weights * tilt.law[start:stop])) + math.sqrt(float(np.sum(weights * weights))) * tilt.noise + left_out
        relative = tilt.relative + ULP * len(weights) + 8.0 * ULP * (abs(tilt.log_scale) + tilt.theta * epsilon)
        finite = math.exp(min(tilt.log_scale - tilt.theta * epsilon, 700.0)) * max(inside, 0.0) * (1.0 + relative)
        return min(1.0, self.infinite + finite + UNDERFLOW)

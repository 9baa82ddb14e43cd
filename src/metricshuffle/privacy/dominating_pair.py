"""Renyi divergences, trade-off curves and loss distributions derived from a privacy profile.

All are computed from delta(epsilon) at sampled epsilons. Between these, chords bound the curve from
above, so the results hold for every pair of laws whose curve lies below the samples: divergences
are upper bounds, and errors of tests are lower bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified, require
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64

Curve = Callable[[float], float]

POINTS = 256
"""Number of epsilons sampled where delta is not negligible."""
MAX_LOSS = 600.0
"""Losses beyond this are not distinguished, as e^loss would not be a float."""
NEGLIGIBLE_DELTA = 1e-18
"""Below this delta the curve is sampled at few epsilons."""
EPSILON_GROWTH = 1.25  # ratio of consecutive epsilons where delta is negligible
# Every mass is rounded outwards by this fraction. It covers a few roundings of numbers up to e^600,
# each of which also has a rounding error in its exponent.
MASS_SLACK = 1e-12
LOSS_INTERVAL = 1e-4
"""Default spacing of losses: that of dp-accounting, which composes equal intervals only."""


def validate_order(order: float) -> float:
    """Return the order of a Renyi divergence as a float >= 1, infinity included."""
    if isinstance(order, bool) or not isinstance(order, int | float) or not order >= 1.0:
        raise InputError(
            f"the order of a Renyi divergence must be a number >= 1 here, got {order!r}."
        )
    return float(order)


@dataclass(frozen=True)
class TradeOff:
    """Lower bound on the type II error (beta) of any test, given its type I error (alpha).

    Statement: f(alpha) = max over the sampled (epsilon, delta) of 0, 1 - delta - e^epsilon alpha
    and e^-epsilon (1 - delta - alpha). Each is a lower bound for a pair that is (epsilon,
    delta)-indistinguishable in both directions, so their maximum is one too; it is convex,
    decreases, and is its own inverse. It is the best such bound that the samples allow; between
    them the true curve may be larger.
    Numerics: rounded down.
    Reference: Wasserman, Zhou 2010; Dong, Roth, Su, Gaussian Differential Privacy, 2022.
    """

    epsilons: Floats
    deltas: Floats

    def __call__(self, alpha: ArrayLike) -> Any:
        """Return f at one alpha in [0, 1], or at each of several."""
        errors = np.asarray(alpha, dtype=np.float64)
        if not np.all((errors >= 0.0) & (errors <= 1.0)):
            raise InputError(
                f"alpha is the probability of a type I error, in [0, 1], got {alpha!r}."
            )
        column = errors[..., None]
        growth = np.exp(self.epsilons)
        steep = (
            1.0
            - self.deltas
            - growth * column
            - 8.0 * ROUNDOFF * (1.0 + growth * column * (1.0 + self.epsilons))
        )
        flat = (1.0 - self.deltas - column - 8.0 * ROUNDOFF) / growth
        flat -= 8.0 * ROUNDOFF * (1.0 + self.epsilons) * np.abs(flat)
        betas = np.maximum(0.0, np.maximum(steep, flat).max(axis=-1))
        return float(betas) if betas.ndim == 0 else betas

    @property
    def points(self) -> tuple[Floats, Floats]:
        """Breakpoints of the curve, alpha = 0 and 1 included, and f there.

        Up to rounding, the curve is linear between them.
        """
        growth = np.exp(self.epsilons)
        bends = np.clip(-np.diff(self.deltas) / np.diff(growth), 0.0, 1.0)
        # where the steep half meets its mirror image
        middle = (1.0 - self.deltas[:1]) / (1.0 + growth[:1])
        alphas = np.unique(
            np.concatenate(
                [[0.0, 1.0], bends, middle, np.asarray(self(bends)), 1.0 - self.deltas[-1:]]
            )
        )
        return alphas, np.asarray(self(alphas))


@dataclass(frozen=True)
class DominatingPair:
    """Two laws at least as distinguishable as any pair below the sampled curve.

    Made by `dominating_pair`. `losses` are log ratios of the first law to the second, in ascending
    order. `masses` are the masses of the first law at these losses; the second law has the masses
    mass * e^-loss. `infinite` is the mass of reports that only the first law can produce.
    """

    losses: Floats
    masses: Floats
    infinite: float

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence of the pair at e^epsilon, rounded up."""
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilons: Floats) -> Floats:
        """Return `delta` at each of several epsilons."""
        gaps = np.maximum(self.losses - np.asarray(epsilons, dtype=np.float64)[:, None], 0.0)
        return np.minimum(
            1.0, (self.infinite + -np.expm1(-gaps) @ self.masses) * (1.0 + MASS_SLACK)
        )

    @theorem("metricshuffle", "Renyi divergence from a hockey-stick curve")
    def renyi(self, order: float) -> float:
        """Upper bound on the Renyi divergence of every pair below the curve, in either direction.

        Infinite if `infinite` is not 0.

        Statement: exp((a-1) D_a(P||Q)) = 1 + a(a-1) int_1^inf (c^(a-2) E_c(P||Q) + c^(-a-1)
        E_c(Q||P)) dc for a > 1, and D_1 = int_1^inf (E_c(P||Q)/c + E_c(Q||P)/c^2) dc
        (Kullback-Leibler), E_c the hockey-stick divergence at c = e^epsilon.
        Proof: phi(r) = r^a - a r + a - 1 has phi(1) = phi'(1) = 0, so by Taylor phi(r) = int_1^inf
        phi''(c) (r - c)_+ dc + int_0^1 phi''(c) (c - r)_+ dc. Take the expectation over Q with r =
        P/Q, substitute 1/c for c in the second integral, and use phi'' = a(a-1) c^(a-2); phi(r) = r
        log r - r + 1 gives the case a = 1. Both weights are positive, so a curve that lies above
        both E_c gives an upper bound: here that of the pair itself, sum of mass * (e^((a-1) l) - a
        + (a-1) e^-l), whose terms are all >= 0.
        Conditions: order >= 1; both directions lie below one curve.
        Numerics: the masses were rounded up, and each term's rounding error is added.
        Reference: Sason, Verdu, f-divergence inequalities, IEEE Transactions on Information Theory
        62 (2016), on E_gamma divergences.
        """
        order = validate_order(order)
        if self.infinite > 0.0:
            return math.inf
        support = self.masses > 0.0
        losses = self.losses[support]
        masses = self.masses[support]
        farthest = float(losses.max(initial=0.0))
        if order == math.inf or farthest == 0.0:
            return farthest
        exponent = order - 1.0
        if exponent * farthest > MAX_LOSS:
            exponents = np.log(masses) + exponent * losses
            top = float(exponents.max())
            total = top + math.log(math.fsum(np.exp(exponents - top)))
            return min(
                farthest,
                max(0.0, total + MASS_SLACK * (1.0 + float(np.abs(exponents).max())))
                / exponent
                * (1.0 + MASS_SLACK),
            )
        growth, back = (
            (losses, np.expm1(-losses))
            if exponent == 0.0
            else (np.expm1(exponent * losses), exponent * np.expm1(-losses))
        )
        doubt = (
            8.0
            * ROUNDOFF
            * (
                np.abs(growth) * (1.0 + exponent * np.abs(losses))
                + np.abs(back) * (1.0 + np.abs(losses))
            )
        )
        total = math.fsum(masses * (np.maximum(growth + back, 0.0) + doubt)) * (1.0 + MASS_SLACK)
        divergence = total if exponent == 0.0 else math.log1p(total) / exponent
        return min(farthest, divergence * (1.0 + MASS_SLACK))


def lower_hull(
    points: int, fall: Callable[[Integers64, Integers64], Floats]
) -> tuple[Integers64, Floats]:
    """Return the vertices of the lower convex hull of points -1..points-1, and its slopes.

    `fall(a, b)` is minus the slope of the curve between points a < b. The second array has minus
    the slope of the hull to each vertex from the previous one (inf for the first vertex, -1).
    Points on or above the chord of their neighbours are removed until no such point is left; a
    vertex of the hull is never removed.
    """
    vertices = np.arange(-1, points)
    while True:
        falls = fall(vertices[:-1], vertices[1:])
        below = np.append(falls[1:] < falls[:-1], True)
        if below.all():
            return vertices, np.append(math.inf, falls)
        vertices = np.append(-1, vertices[1:][below])


def _hull(epsilons: Sequence[float], deltas: Sequence[float]) -> tuple[Floats, Floats, list[float]]:
    """Return the lower convex hull of (-1, 1) and the points (e^epsilon, least delta so far).

    Returns epsilons and deltas of the vertices after (-1, 1), and minus the slopes to them, times
    e^(last epsilon).
    """
    at = np.asarray(epsilons, dtype=np.float64)
    sampled = np.asarray(deltas, dtype=np.float64)
    if not (
        at.ndim == 1
        and at.shape == sampled.shape
        and at.size
        and at[0] == 0.0
        and np.all(np.diff(at) > 0.0)
        and at[-1] <= MAX_LOSS
    ):
        raise InputError("epsilons must rise from 0 to at most 600, with a delta for each.")
    if not np.all((sampled >= 0.0) & (sampled <= 1.0)):
        raise NotCertified(
            "a profile returned a delta outside [0, 1]; please report this as a bug."
        )
    vertices, falls = lower_hull(at.size, fall_rates(at, u := np.minimum.accumulate(sampled)))
    return at[vertices[1:]], u[vertices[1:]], falls[1:].tolist()


def fall_rates(epsilons: Floats, deltas: Floats) -> Callable[[Integers64, Integers64], Floats]:
    """Return fall(a, b): minus the slope of a curve over x = e^epsilon between points a < b.

    The result is multiplied by the last x. Point -1 is (-1, 1).
    """
    beyond = np.exp(epsilons[-1] - epsilons)
    first = (1.0 - deltas) * beyond / (1.0 + np.exp(-epsilons))

    def fall(a: Integers64, b: Integers64) -> Floats:
        known = np.maximum(a, 0)
        with np.errstate(divide="ignore", invalid="ignore"):  # from -1 to 0, where `first` is used
            between = (
                (deltas[known] - deltas[b])
                * beyond[known]
                / np.expm1(epsilons[b] - epsilons[known])
            )
        return np.asarray(np.where(a < 0, first[b], between))

    return fall


def trade_off(epsilons: Sequence[float], deltas: Sequence[float]) -> TradeOff:
    """Return the trade-off bound of pairs that are indistinguishable at each (epsilon, delta).

    Samples off the convex hull are left out.
    """
    at, u, _ = _hull(epsilons, deltas)
    return TradeOff(at, u)


@theorem("metricshuffle", "dominating pair of a curve at any epsilons")
def dominating_pair(epsilons: Sequence[float], deltas: Sequence[float]) -> DominatingPair:
    """Return two laws whose curve lies above that of every pair below the samples.

    Statement: as for `accounting.composition.loss_distribution.dominating_losses`, at epsilons that
    need not be evenly spaced. For every pair that is (epsilon, delta)-indistinguishable in both
    directions at each sample, the curve lies below g(x), x = e^epsilon >= 1, the lower convex hull
    of (-1, 1) and the points (e^epsilon, least delta so far), constant from the last one on. A
    chord lies above the convex curve of a pair, for ANY choice of points. The masses are the
    changes of slope.
    Conditions: epsilons ascend from 0 to at most 600.
    Numerics: differences of floats are right to a rounding, so slopes and masses are right to a few
    roundings RELATIVE to themselves; both are raised by MASS_SLACK, and what underflows becomes the
    smallest float.
    Reference: Doroshenko et al. 2022, Algorithm 1; docs/proofs/loss-distribution.md.
    """
    at, u, falls = _hull(epsilons, deltas)
    last = float(at[-1])
    slopes = np.maximum.accumulate(np.array([*falls, 0.0])[::-1])[::-1] * (1.0 + MASS_SLACK)
    change = (slopes[:-1] - slopes[1:]) * (1.0 + MASS_SLACK)
    some = (change > 0.0) & (at > 0.0)
    smallest = math.ulp(0.0)
    back, forth = (
        np.maximum(change[some] * np.exp(power), smallest) for power in (-last, at[some] - last)
    )
    infinite = float(u[-1])
    equal = max(0.0, 1.0 - math.fsum(back) - math.fsum(forth) - infinite) + 8.0 * ROUNDOFF
    losses = np.concatenate([-at[some][::-1], [0.0], at[some]])
    return DominatingPair(losses, np.concatenate([back[::-1], [equal], forth]), infinite)


def sample_epsilons(
    curve: Curve, pure: float, points: int = POINTS, negligible: float = NEGLIGIBLE_DELTA
) -> list[float]:
    """Return epsilons from 0 to where delta is 0 (or to MAX_LOSS).

    They are evenly spaced until delta falls to `negligible`, and ever farther apart beyond.
    """
    if isinstance(points, bool) or not isinstance(points, int) or not 2 <= points <= 2**20:
        raise InputError(f"points must be a whole number from 2 to 2^20, got {points!r}.")
    max_epsilon = min(pure, MAX_LOSS)
    if max_epsilon == 0.0:
        return [0.0]
    # If delta never becomes negligible, the even spacing ends where delta stops decreasing.
    enough = negligible if max_epsilon == pure else max(negligible, 1.001 * curve(max_epsilon))
    if curve(0.0) <= enough:
        return [0.0, max_epsilon]
    reach = last_certified(
        lambda epsilon: curve(epsilon) <= enough, 0.0, max_epsilon, relative=0.02
    )
    reach = max_epsilon if max_epsilon <= 2.0 * reach else reach
    epsilons = np.linspace(0.0, reach, points).tolist()
    while (farther := epsilons[-1] * EPSILON_GROWTH) < max_epsilon:
        epsilons.append(farther)
    return sorted({*epsilons, max_epsilon})


def loss_distribution(curve: Curve, pure: float, interval: float, points: int) -> Any:
    """Return a `PrivacyLossDistribution` of dp-accounting, the same in both directions.

    Losses are multiples of `interval`.
    """
    if not (isinstance(interval, int | float) and 0.0 < interval <= 1.0):
        raise InputError(f"interval must be a number in (0, 1], got {interval!r}.")
    distributions = require(
        "dp_accounting.pld.privacy_loss_distribution", "compose"
    ).PrivacyLossDistribution
    wanted = sample_epsilons(curve, pure, points)
    places = sorted({math.ceil(epsilon / interval) for epsilon in wanted})
    if pure < MAX_LOSS and places[-1] * interval < pure:  # the quotient was rounded down
        places.append(places[-1] + 1)
    while places[-1] * interval > MAX_LOSS:
        places.pop()
    at = [place * interval for place in places]
    pair = dominating_pair(at, [curve(epsilon) for epsilon in at])
    if not 1.0 <= math.fsum(pair.masses) + pair.infinite <= 1.0 + 1e-9:
        raise NotCertified(
            "the loss distribution of a profile has a total mass other than 1; please "
            "report this as a bug."
        )
    whole = [round(loss / interval) for loss in pair.losses.tolist()]
    return distributions.create_from_rounded_probability(
        dict(zip(whole, pair.masses.tolist(), strict=True)), pair.infinite, interval
    )

"""Metric privacy with a delta that grows with the distance (Athanasiou25, footnote 2)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from metricshuffle.citations import theorem
from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import round_down, round_up
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle_papers.published import open_delta


def delta_at(delta: float, distance: float) -> float:
    """Delta that the weaker variant allows at a distance: delta e^distance, rounded down."""
    return round_down(open_delta(delta) * math.exp(min(distance, 700.0)), 6)


@theorem("Athanasiou25", "Footnote 2, metric privacy with delta e^d: true")
def growing_delta_rate(profile: PrivacyProfile, delta: float, distances: Iterable[float]) -> float:
    """Epsilon per unit of distance at which delta e^d is allowed at distance d.

    Statement: with the returned rate r, P[M(x) in S] <= e^(r d) P[M(x') in S] + delta e^d for all
    x, x' at each distance d > 0 of the list. r is the largest epsilon(delta e^d, d)/d over them.
    Where delta e^d >= 1 nothing is demanded. As e^d > 1, r is at most the rate of the usual variant
    with the same delta, so that results for that one carry over, as the footnote says. Conversely
    a weaker promise up to distance R is the usual one with delta e^R.
    Conditions: the list has every distance that occurs, in the unit of d; 0 < delta < 1. The unit
    matters: in metres instead of kilometres delta grows by e^1000 a kilometre.
    Numerics: delta e^d is rounded down, the profile's epsilon is certified, quotients are rounded
    up; inf if no epsilon is certified at some distance.
    Reference: Athanasiou, Chatzikokolakis, Palamidessi 2025, footnote 2 and its [2].
    """
    open_delta(delta)
    rate = 0.0
    for distance in distances:
        if not 0.0 < distance < math.inf:
            raise InputError(f"distances must be finite and greater than 0, got {distance!r}.")
        allowed = delta_at(delta, distance)
        if allowed < 1.0:
            rate = max(rate, round_up(profile.epsilon(allowed, distance) / distance, 2))
    return rate

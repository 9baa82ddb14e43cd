"""Divergence of one move by `LargeMoves`."""

from __future__ import annotations

from metricshuffle.accounting.vectors.feature_changes import FeatureChanges
from metricshuffle.accounting.vectors.large_moves import LargeMoves


def large_move_delta(changes: FeatureChanges, epsilon: float) -> float:
    return LargeMoves(lambda _: (changes,)).delta(epsilon, 1.0)


def large_move_epsilon(changes: FeatureChanges, delta: float) -> float:
    return LargeMoves(lambda _: (changes,)).epsilon(delta, 1.0)

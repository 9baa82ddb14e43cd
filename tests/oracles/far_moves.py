"""What `FarMoves` says of one move."""

from __future__ import annotations

from metricshuffle.accounting.vectors.changes import Changes
from metricshuffle.accounting.vectors.far_moves import FarMoves


def far_delta(changes: Changes, epsilon: float) -> float:
    return FarMoves(lambda _: (changes,)).delta(epsilon, 1.0)


def far_epsilon(changes: Changes, delta: float) -> float:
    return FarMoves(lambda _: (changes,)).epsilon(delta, 1.0)

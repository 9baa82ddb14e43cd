"""Exact law of the multiset of a few users' reports, by enumeration: the adversary's view."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def multiset_law(laws: Sequence[Floats]) -> dict[tuple[int, ...], float]:
    """Law of the counts of each message when user i draws one message from laws[i]."""
    current = {(0,) * len(laws[0]): 1.0}
    for law in laws:
        following: dict[tuple[int, ...], float] = defaultdict(float)
        for counts, mass in current.items():
            for message, chance in enumerate(law):
                if chance > 0.0:
                    following[*counts[:message], counts[message] + 1, *counts[message + 1 :]] += (
                        mass * chance
                    )
        current = following
    return dict(current)


def divergence(
    one: dict[tuple[int, ...], float], other: dict[tuple[int, ...], float], epsilon: float
) -> float:
    """Hockey-stick divergence, the worse direction."""
    growth = math.exp(epsilon)
    seen = one.keys() | other.keys()
    pairs = [(one.get(counts, 0.0), other.get(counts, 0.0)) for counts in seen]
    return max(
        math.fsum(max(x - growth * y, 0.0) for x, y in pairs),
        math.fsum(max(y - growth * x, 0.0) for x, y in pairs),
    )


def worst_data_set(
    channel: Floats, a: int, b: int, users: int, epsilon: float
) -> tuple[float, tuple[int, ...]]:
    """Largest divergence between user 1 holding a and b, over every data set of the others.

    Their order does not matter.
    """
    found: tuple[float, tuple[int, ...]] = (-1.0, ())
    for others in itertools.combinations_with_replacement(range(len(channel)), users - 1):
        rest = [channel[value] for value in others]
        found = max(
            found,
            (
                divergence(
                    multiset_law([channel[a], *rest]), multiset_law([channel[b], *rest]), epsilon
                ),
                others,
            ),
        )
    return found


def private_distances(channel: Floats) -> Floats:
    """Smallest D for which the channel is D-private: max over messages of |log ratio|."""
    logs = np.log(channel)
    return np.asarray(np.abs(logs[:, None, :] - logs[None, :, :]).max(axis=2))

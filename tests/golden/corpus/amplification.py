"""(b) Epsilon after shuffling, from above and below, as hexadecimal floats: every randomizer, five sizes, three deltas."""

from __future__ import annotations

from typing import Any

from tests.golden.corpus.recording import Items
from tools.randomizers_page import EXAMPLES

import metricshuffle as ms
from metricshuffle import randomizers

USERS = (2, 10, 10**3, 10**6, 10**9)
DELTAS = (1e-3, 1e-6, 1e-12)


def _randomizers() -> dict[str, Any]:
    """The examples of the page on randomizers, and the two that it has no example of."""
    named = {name: getattr(randomizers, name)(*arguments) for name, arguments in EXAMPLES.items()}
    return {**named, "AmongDummies": randomizers.AmongDummies.coins(0.25), "GenericLDP": ms.GenericLDP(1.0)}


def _epsilon(randomizer: Any, users: int, delta: float) -> dict[str, str]:
    try:
        band = ms.amplify(randomizer, users).epsilon(delta)
    except ms.MetricShuffleError as error:
        return {"refused": type(error).__name__}
    return {"upper": float(band.upper).hex(), "lower": float(band.lower).hex(), "bound": band.bound}


def record() -> Items:
    return {
        f"{name}, {users} users": {f"delta {delta:g}": _epsilon(randomizer, users, delta) for delta in DELTAS}
        for name, randomizer in _randomizers().items()
        for users in USERS
    }

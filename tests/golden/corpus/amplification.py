"""(b) Epsilon after shuffling, both bounds, as hexadecimal floats, for every randomizer."""

from __future__ import annotations

from typing import Any

from tests.golden.corpus.recording import Items
from tools.randomizers_page import EXAMPLES

import metricshuffle as ms
from metricshuffle import randomizers

USERS = (2, 10, 10**3, 10**6, 10**9)
DELTAS = (1e-3, 1e-6, 1e-12)


def examples() -> dict[str, Any]:
    """Examples of the page on randomizers, and the two without an example there."""
    named = {name: getattr(randomizers, name)(*arguments) for name, arguments in EXAMPLES.items()}
    return {
        **named,
        "AmongDummies": randomizers.AmongDummies.coins(0.25),
        "GenericLDP": ms.GenericLDP(1.0),
    }


def band(randomizer: Any, users: int, delta: float) -> dict[str, str]:
    """Both ends as hexadecimal floats, and the bound that gave the upper one."""
    try:
        amplified = ms.amplify(randomizer, users).epsilon(delta)
    except ms.MetricShuffleError as error:
        return {"refused": type(error).__name__}
    return {
        "upper": float(amplified.upper).hex(),
        "lower": float(amplified.lower).hex(),
        "bound": amplified.bound,
    }


def record() -> Items:
    return {
        f"{name}, {users} users": {
            f"delta {delta:g}": band(randomizer, users, delta) for delta in DELTAS
        }
        for name, randomizer in examples().items()
        for users in USERS
    }

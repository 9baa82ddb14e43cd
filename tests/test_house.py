"""Names of the source that say nothing, or stand for two things: their number only falls. Whoever makes one smaller writes it here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.house import measured

SOURCE = Path(__file__).parents[1] / "src"
LIMITS = {
    "class names in several places": 8,
    "module names in several places": 0,
    "banned variables, bound": 56,
    "uses of Any": 898,
}


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return measured(SOURCE)


@pytest.mark.parametrize("name", LIMITS)
def test_names_do_not_get_worse(name: str, counts: dict[str, int]) -> None:
    assert counts[name] <= LIMITS[name]

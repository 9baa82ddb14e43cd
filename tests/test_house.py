"""Counts of unclear and ambiguous names in the source, which may only fall.

When a count falls, lower its limit here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tables import check_all
from tools.house import measured

SOURCE = Path(__file__).parents[1] / "src"
LIMITS = {
    "class names in several places": 0,
    "module names in several places": 0,
    "banned variables, bound": 35,
    "uses of Any": 366,
    "summaries over a line": 0,
    "private words in docstrings": 56,
}


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return measured(SOURCE)


@check_all("name", LIMITS)
def test_names_do_not_get_worse(name: str, counts: dict[str, int]) -> None:
    assert counts[name] <= LIMITS[name]

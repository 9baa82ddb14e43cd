"""docs/users.md: the table of invented users agrees with the command to the digits shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.docs.blocks import typed

PAGE = (Path(__file__).parent.parent.parent / "docs" / "users.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (nobody|shuffler|curator) \| (.*?) \| (any replacement|moves, by distance) \| "
    r"(.*?) \| (.*?) \|$",
    re.M,
)


def shown(cell: str) -> tuple[str, float | None]:
    """Error of a cell, and its stated factor below user-level privacy (below 1: larger)."""
    error, _, gain = cell.partition(", ")
    times = float(gain.split()[0]) if gain else None
    return error, None if times is None else times if "smaller" in gain else 1.0 / times


@pytest.mark.slow
def test_the_table_of_invented_users_is_what_the_command_finds() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) == 6
    for column, comparison in enumerate(
        json.loads(typed("metricshuffle users compare --epsilon 1 --json"))["comparisons"]
    ):
        assert comparison["rate"] == (1.0, 20.0)[column]
        assert comparison["runs"] == 40
        for trusted, way, hides, *cells in rows:
            model = "local" if trusted == "nobody" else "central"
            mine = [method for method in comparison["methods"] if method["model"] == model]
            best = min(
                (method for method in mine if method["hides"] == "user"),
                key=lambda method: method["error"],
            )
            if hides == "any replacement":
                assert best["name"] == way
            name = (
                best["name"]
                if hides == "any replacement"
                else "tree Laplace"
                if way.startswith("tree Laplace")
                else "item-wise"
            )
            (method,) = (method for method in mine if method["name"] == name)
            error, times = shown(cells[column])
            assert f"{method['error']:.{len(error.partition('.')[2])}f}" == error, (
                f"{trusted}, {way}: {method['error']}"
            )
            assert times is None or abs(best["error"] / method["error"] / times - 1.0) < 0.05

"""Table 2b: who wins at which rate."""

from __future__ import annotations

import pytest

from metricshuffle.papers.items.earth_mover_table_2b import ITEM, SETTINGS, compared
from metricshuffle.papers.reproduction import Settings


def test_one_setting_has_every_way_and_a_winner() -> None:
    found = compared(SETTINGS[2], 4, 1)
    assert {one.hides for one in found.methods} == {"user", "earth mover", "published"}
    assert found.gain("central") > 10.0
    ours = next(one for one in found.methods if one.name == "item-wise")
    assert all(one.strength < ours.strength for one in found.methods if one.hides == "published")
    assert "What was relaxed" in found.sentences()[-1]


@pytest.mark.slow
def test_wins_and_losses() -> None:
    found = ITEM.run(Settings(runs=12))
    assert len({row.label for row in found.rows}) == len(found.rows) > 40
    errors = {row.label: row.ours or 0.0 for row in found.rows}

    def best(part: str, *names: str) -> float:
        return min(error for label, error in errors.items() if label.endswith(part) and label.startswith(names))

    relaxed = "central, n = 10,000, m = 100, 8 x 8, r = 0.05, epsilon 1, alpha 20"
    equal = relaxed.removesuffix("20") + "1"
    assert best(relaxed, "tree Laplace") < best(relaxed, "two-level Laplace") / 3.0
    assert best(equal, "tree Laplace") > 2.0 * best(equal, "two-level Laplace")

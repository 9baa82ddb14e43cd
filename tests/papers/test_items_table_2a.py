"""Table 2a: the rule that says who wins."""

from __future__ import annotations

import pytest

from metricshuffle.papers.items.earth_mover_table_2a import ITEM
from metricshuffle.papers.reproduction import Settings


def test_wins_losses_and_formulas() -> None:
    found = ITEM.run(Settings(quick=True))
    assert "125 times smaller" in found.words[0]
    assert "(1.00)" in found.words[0]
    assert "5 times worse" in found.words[1]
    assert "100 times" in found.words[1]
    assert "2.0 times better" in found.words[1]
    assert len({row.label for row in found.rows}) == len(found.rows)
    for row in found.rows:
        assert row.ours is not None
        predicted = float(row.note.split("by formula ")[1].split(";")[0])
        assert row.ours == pytest.approx(predicted, abs=5.0 * (row.standard_error or 1e-12) + 1e-3 * predicted), row.label

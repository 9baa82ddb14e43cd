"""All candidates of a plan under the worst attacks known, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

import metricshuffle as ms
from metricshuffle.planning.candidate_attacks import AttackedCandidate, attack_candidates
from metricshuffle.randomness import Randomness

LABELS = ms.Histogram(ms.Categories(["a", "b", "c"]))


def check_rows(plan: ms.Plan, rows: list[AttackedCandidate], liars: int) -> None:
    assert [row.offer for row in rows] == list(plan.candidates)
    for row in rows:
        assert row.attack is not None, row.reason
        limit = row.attack.damage.of(liars)
        if row.attack.damage.certified and limit is not None:
            assert row.attack.excess <= limit * (1 + 1e-9)
            assert 0.4 * limit <= row.attack.moved <= limit * (1 + 1e-9)
            assert row.attack.error_with <= row.attack.error_without + limit
        if row.attack.damage.one is None and row.offer.trusted == "shuffler":
            assert row.attack.error_with > 2 * row.attack.error_without


def test_every_candidate_is_attacked_and_keeps_its_damage() -> None:
    plan = ms.plan(LABELS, ms.Target(1, 1e-6, 1), 400, floor="never")
    rows = list(attack_candidates(plan, "1%", 5, Randomness.seeded(1)))
    check_rows(plan, rows, 4)
    assert any(row.attack and row.attack.damage.certified for row in rows)


def test_a_saved_plan_has_all_its_candidates_calibrated_again(tmp_path: Path) -> None:
    plan = ms.plan(ms.Mean(ms.Integers(0, 20)), ms.Target(1, 1e-6, 1), 300)
    plan.save(tmp_path / "plan.json")
    stored = ms.Plan.load(tmp_path / "plan.json")
    assert any(offer.mechanism is None for offer in stored.candidates)
    check_rows(stored, list(attack_candidates(stored, 3, 2, Randomness.seeded(1))), 3)


def test_candidates_for_records_are_attacked() -> None:
    """People with sets and keys, spread evenly: reports have a number, vectors have none."""
    sets = ms.plan(ms.Sets(["a", "b", "c"], size=2), ms.Target(2, 1e-6, 3, "flat"), 600)
    rows = list(attack_candidates(sets, 6, 2, Randomness.seeded(1)))
    check_rows(sets, rows, 6)
    assert any(row.attack and row.attack.damage.certified for row in rows)
    keys = ms.plan(ms.KeyValues(["a", "b"], ms.Integers(0, 9), 1), ms.Target(1, 1e-6, 9), 300)
    check_rows(keys, list(attack_candidates(keys, 3, 2, Randomness.seeded(1))), 3)


@pytest.mark.thorough
def test_every_candidate_keeps_its_damage_with_many_people() -> None:
    plan = ms.plan(LABELS, ms.Target(1, 1e-6, 1), 100_000, floor="never")
    check_rows(plan, list(attack_candidates(plan, "1%", 1, Randomness.seeded(1))), 1000)

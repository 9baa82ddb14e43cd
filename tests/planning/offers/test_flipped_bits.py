"""Sums from flipped bits are left out only where they certainly cannot win."""

from __future__ import annotations

from typing import Any

import pytest

import metricshuffle as ms
from metricshuffle.planning.candidates import flipped_bit_calibration as flipped
from metricshuffle.planning.candidates.sum_setting import SumSetting
from metricshuffle.planning.plan_request import PlanRequest

SETTINGS: dict[str, tuple[Any, ms.Target, int, dict[str, Any]]] = {
    "a few people": (ms.Sum(ms.Integers(0, 30)), ms.Target(1.0, 1e-6, 10), 40, {}),
    "many people": (ms.Sum(ms.Integers(0, 20)), ms.Target(0.5, 1e-6, 5), 4000, {}),
    "half honest": (ms.Mean(ms.Integers(0, 12)), ms.Target(2.0, 1e-5, 12), 300, {"honest": 0.5}),
    "flat": (ms.Sum(ms.Integers(0, 9)), ms.Target(1.0, 1e-6, 9, "flat"), 500, {}),
    "two rounds": (ms.Sum(ms.Integers(0, 5)), ms.Target(2.0, 1e-5, 5), 400, {"rounds": 2}),
    "two axes": (ms.Centroid(ms.Grid(6, 4, 1.0)), ms.Target(3.0, 1e-5, 3.0), 400, {}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_an_error_is_exceeded_only_if_the_calibrated_one_does(name: str) -> None:
    query, target, users, options = SETTINGS[name]
    at = SumSetting(PlanRequest(query, target, users, **options).setting, query)
    error = flipped.randomized_response(at).expected_error
    assert not any(flipped.exceeds_error(at, share * error) for share in (1.0, 1.001, 1.5, 30.0))
    assert flipped.exceeds_error(at, 0.5 * error)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_choice_is_the_same_whether_or_not_it_is_left_out(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, target, users, options = SETTINGS[name]
    whole = ms.plan(query, target, users, **options)
    monkeypatch.setattr(flipped, "MANY_COUNTS", 0.0)
    short = ms.plan(query, target, users, **options)
    assert short.task == whole.task
    rows = [row for row in short.not_offered if row.protocol == flipped.NAME]
    assert len(rows) + sum(offer.protocol == flipped.NAME for offer in short.candidates) == 1
    for row in rows:
        assert f"it cannot have less error than {short.choice.protocol}" in row.reason
        assert f"--protocol {flipped.NAME}" in row.reason
    named = ms.plan(query, target, users, protocols=[flipped.NAME], **options)
    assert [offer.protocol for offer in named.candidates] == [flipped.NAME]


def test_it_is_calibrated_where_nothing_else_may_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few bits are all that is allowed: what has less error does not count then."""
    monkeypatch.setattr(flipped, "MANY_COUNTS", 0.0)
    query = ms.Sum(ms.Integers(0, 9))
    target = ms.Target(1.0, 1e-6, 3)
    assert ms.plan(query, target, 500, max_bits=9).choice.protocol == flipped.NAME


def test_wide_sums_do_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """33 people in 0..30,000: 21 of 23 seconds went into a candidate with three times the error."""

    def calibrated(at: SumSetting) -> None:
        raise AssertionError("it was calibrated")

    monkeypatch.setattr(flipped, "randomized_response", calibrated)
    plan = ms.plan(ms.Sum(ms.Integers(0, 30_000)), ms.Target(1.0, 1e-6, 3_000), 33)
    assert (plan.choice.protocol, plan.choice.encoding) == ("polya-shuffle", "modular")
    assert [row.protocol for row in plan.not_offered] == [flipped.NAME]

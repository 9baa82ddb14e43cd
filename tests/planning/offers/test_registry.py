"""Offers are made in order and started before waiting; failures are reported."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from metricshuffle.errors import NotCertified
from metricshuffle.planning import Candidate, plan
from metricshuffle.planning.candidates import Offer, SkippedCandidate, calibrate_offers
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Mean
from metricshuffle.spaces import Integers


@pytest.fixture
def setting() -> Setting:
    return PlanRequest(Mean(Integers(0, 10)), Target(1.0, 1e-6, 2.0), 1_000, None).setting


def test_offers_are_all_begun_before_any_is_finished_and_come_in_order(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    like = plan(setting.query, setting.target, setting.users).candidates[0]

    def named(name: str) -> Candidate:
        steps.append(name)
        return like.model_copy(update={"protocol": name})

    def begin(name: str) -> Callable[[], Candidate]:
        steps.append(f"{name} begun")
        return partial(named, name)

    def fail(name: str) -> Candidate:
        steps.append(name)
        raise NotCertified(f"{name} failed.")

    offers = [
        Offer("slow", None, partial(begin, "slow")),
        Offer("failing", None, partial(fail, "failing")),
        Offer("failing late", None, lambda: partial(fail, "failing late")),
        Offer("quick", None, partial(named, "quick")),
    ]
    monkeypatch.setattr("metricshuffle.planning.candidates.registry.all_offers", lambda _: offers)
    told: list[str] = []
    found = list(calibrate_offers(setting, told.append))
    assert steps == ["slow begun", "failing", "quick", "slow", "failing late"]
    assert told == ["slow", "failing", "failing late", "quick"]
    assert [one.protocol for one in found] == ["slow", "failing", "failing late", "quick"]
    assert [one.reason for one in found if isinstance(one, SkippedCandidate)] == [
        "failing failed.",
        "failing late failed.",
    ]

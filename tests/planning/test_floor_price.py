"""`floor`: always, auto or never, what a floor costs, and what is said where there is none."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import InputError
from metricshuffle.planning.candidate import Candidate
from metricshuffle.planning.consent import consent
from metricshuffle.planning.floor_price import MAX_PRICE, FloorPrice, decide_floor
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.planning.plan_text import option_words
from metricshuffle.web.forms import asked
from metricshuffle.web.results import in_labels, load_result

LINE = ms.Histogram(ms.Integers(0, 15))
ITEMS = ms.UserHistogram(ms.Users(ms.Space(ms.Integers(0, 7)), 5))
LABELS = ms.Histogram(ms.Categories(list("abcd")))
ADVICE = (
    "times larger; floor='auto' leaves it out where it costs more than 1.5 times, and then a "
    "colluding shuffler reads everything."
)


@lru_cache
def planned(query: Any, distance: float, users: int, **choices: Any) -> ms.Plan:
    target = ms.Target(1.0, 1e-6, distance)
    return ms.plan(query, target, users, protocols=["noisy-vectors"], **choices)


def line_plan(**choices: Any) -> ms.Plan:
    return planned(LINE, 4.0, 5000, **choices)


def items_plan(**choices: Any) -> ms.Plan:
    return planned(ITEMS, 2.0, 500, **choices)


def price_of(plan: ms.Plan) -> FloorPrice:
    assert plan.floor_price is not None
    return plan.floor_price


@pytest.mark.parametrize("make", [line_plan, items_plan])
def test_always_is_the_default_and_says_what_it_costs(make: Any) -> None:
    plan = make()
    bare = next(offer for offer in plan.candidates if "no floor" in (offer.encoding or ""))
    assert plan.choice.local_epsilon <= 10.0
    assert bare.baseline
    price = price_of(plan)
    assert price.times == plan.choice.expected_error / bare.expected_error > MAX_PRICE
    assert f"A floor of 10 makes errors {price.times:.3g} {ADVICE}" in str(plan)
    assert make(floor=True).to_json() == plan.to_json()


@pytest.mark.parametrize("make", [line_plan, items_plan])
def test_auto_leaves_an_expensive_floor_out(make: Any) -> None:
    always, auto, never = make(), make(floor="auto"), make(floor="never")
    assert auto.choice.encoding is not None
    assert auto.choice.encoding.endswith(", no floor")
    assert auto.choice.expected_error == price_of(always).error_without
    assert auto.task == never.task
    assert "There is no floor, because a floor of 10 would make errors" in str(auto)
    assert "(more than 1.5 times): a colluding shuffler reads everything." in str(auto)
    assert never.floor_price is None
    assert never.to_json() == make(floor=False).to_json()


def test_auto_takes_a_cheap_floor() -> None:
    always, auto = (planned(LABELS, 1.0, 300, floor=floor) for floor in ("always", "auto"))
    assert auto.task == always.task
    assert price_of(auto).times <= MAX_PRICE
    assert "(not more than 1.5 times, so it stays)." in str(auto)
    assert "times larger" not in str(always)


def test_a_limit_on_one_report_means_a_floor() -> None:
    auto = line_plan(floor="auto", max_local_epsilon=6.0)
    assert auto.choice.local_epsilon <= 6.0
    assert auto.task == line_plan(max_local_epsilon=6.0).task
    assert f"A floor of 6 makes errors {price_of(auto).times:.3g} times larger." in str(auto)
    assert "auto" not in str(auto)


def test_auto_counts_protocols_that_need_no_floor() -> None:
    """A single report may hide values from the shuffler at nearly the error of bare vectors."""
    request = PlanRequest(LINE, ms.Target(1.0, 1e-6, 4.0), 5000, floor="auto")
    offers = list(line_plan().candidates)
    bare = next(offer for offer in offers if offer.baseline and offer.trusted == "shuffler")

    def with_rival(times: float) -> tuple[list[Candidate], FloorPrice | None]:
        rival = bare.model_copy(
            update={
                "protocol": "rival",
                "expected_error": times * bare.expected_error,
                "local_epsilon": 3.0,
                "baseline": False,
                "mechanism": None,
            }
        )
        return decide_floor(request.setting, [*offers, rival])

    def is_taken(candidates: list[Candidate]) -> bool:
        return any(offer.encoding == bare.encoding and not offer.baseline for offer in candidates)

    near, price = with_rival(1.4)
    assert price is not None
    assert not price.floored
    assert not is_taken([offer for offer in near if offer.protocol != "rival"])
    assert price.sentence("auto").startswith(
        "Errors are 1.4 times larger than those of noisy vectors without a floor"
    )
    assert "floor='never' takes those, and then" in price.sentence("always")
    far, price = with_rival(1.6)
    assert price is not None
    assert price.left_out
    assert is_taken([offer for offer in far if offer.protocol != "rival"])
    assert "every protocol that hides values from the shuffler" in price.sentence("auto")


def test_nothing_to_decide_without_trust_or_without_floors() -> None:
    limits: list[dict[str, Any]] = [{"trusted": "nobody"}, {"max_bits": 1}]
    offers = line_plan().candidates
    for limit in limits:
        request = PlanRequest(LINE, ms.Target(1.0, 1e-6, 4.0), 5000, floor="auto", **limit)
        candidates, price = decide_floor(request.setting, offers)
        assert price is None
        assert candidates == list(offers)
    unequal = ms.UserHistogram(ms.Users(ms.Space(ms.Integers(0, 7))))
    plan = planned(unequal, 2.0, 500, floor="auto", most_items=3)
    assert plan.floor_price is None


def test_a_plan_file_keeps_the_price() -> None:
    auto = line_plan(floor="auto")
    stored = json.loads(auto.to_json())
    assert stored["floor"] == "auto"
    assert set(stored["floor_price"]) == set(FloorPrice.model_fields)
    back = ms.Plan.from_json(auto.to_json())
    assert str(back) == str(auto)
    assert back.to_json() == auto.to_json()
    assert "floor" not in json.loads(line_plan().to_json())


def test_the_error_decides_with_auto_too() -> None:
    error = 1.05 * price_of(line_plan()).error_without
    choices: dict[str, Any] = {"floor": "auto", "protocols": ["noisy-vectors"]}
    plan = ms.plan_for_error(LINE, error, 1e-6, 4.0, 5000, **choices)
    assert price_of(plan).left_out
    assert plan.target.epsilon == pytest.approx(1.0, rel=0.2)


def test_what_floor_may_be() -> None:
    target = ms.Target(1.0, 1e-6, 4.0)
    for value, rule in {True: "always", False: "never", "auto": "auto"}.items():
        assert PlanRequest(LINE, target, 50, floor=value).floor == rule
    for wrong in ("sometimes", 1, None):
        with pytest.raises(InputError, match="floor"):
            PlanRequest(LINE, target, 50, floor=wrong)
    with pytest.raises(InputError, match="floor does not apply"):
        PlanRequest(ms.Mean(ms.Integers(0, 9)), target, 50, floor="auto")
    command = PlanRequest(LINE, target, 50, floor="never").to_command()
    assert ("--floor", "never") in command


@check_all(
    "names, words",
    [
        (option_words, "--floor auto leaves it out"),
        (lambda *mark: in_labels(option_words(*mark)), "“Floor” auto leaves it out"),
    ],
)
def test_every_interface_names_the_choice(names: Any, words: str) -> None:
    assert words in price_of(line_plan()).sentence("always", names)


def test_whoever_reads_knows_that_there_is_no_floor() -> None:
    task = line_plan(floor="auto").task
    nothing = "If the shuffler colludes there is in effect no protection"
    assert nothing in str(task)
    assert "next to nothing hides your answer" in str(consent(task))
    small = planned(LINE, 4.0, 60, floor="never")
    values = np.arange(60) % 16
    release = small.task.estimate(small.task.shuffle(small.task.randomize(values)))
    assert str(release).count(nothing) == 1
    assert sum(nothing in sentence for sentence in release.sentences) == 1
    floored = planned(LINE, 4.0, 60)
    assert nothing not in str(floored.task)


def test_the_page_asks_for_it() -> None:
    typed = {"question": "histogram", "low": "0", "high": "7", "step": "1", "distance": "2"}
    typed |= {"users": "3000", "honest": "100"}
    assert asked("number", typed).request.floor == "always"
    assert asked("number", typed | {"floor": "auto"}).request.floor == "auto"
    assert asked("number", typed | {"question": "mean", "floor": "auto"}).request.floor == "always"
    chosen = load_result("number", typed | {"choice": "noisy-vectors~ramps, no floor~shuffler~"})
    assert chosen.plan.choice.encoding == "ramps, no floor"

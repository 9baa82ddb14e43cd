"""Advice on plans: hidden candidates, cost of limits and of dishonest people, more people."""

from __future__ import annotations

import math
import re

import pytest

from metricshuffle.numerics.rounding import format_epsilon, format_number
from metricshuffle.planning import Plan, plan
from metricshuffle.planning.advice import (
    Wishes,
    advice,
    dominates,
    hidden_sentence,
    on_few_people,
    on_honest,
    on_limits,
    on_one_report,
    worth_showing,
)
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.damage import Damage
from metricshuffle.queries import Histogram, Mean, Sum
from metricshuffle.spaces import Categories, Integers

MEAN = Mean(Integers(0, 100, "min"))
TARGET = Target(1.0, 1e-6, 10)


@pytest.fixture(scope="module")
def many() -> Plan:
    """So many people that one report hides little."""
    return plan(MEAN, TARGET, 4_000)


@pytest.fixture(scope="module")
def alone() -> Plan:
    return plan(MEAN, TARGET, 1)


# --- which candidates are shown ---


def test_a_candidate_is_hidden_only_behind_one_that_is_shown(many: Plan) -> None:
    shown = worth_showing(many)
    hidden = set(range(len(many.candidates))) - set(shown)
    assert many.chosen in shown
    assert len(hidden) >= 2
    for index in hidden:
        offer = many.candidates[index]
        assert not offer.baseline
        behind = [
            many.candidates[other] for other in shown if dominates(many.candidates[other], offer)
        ]
        assert behind, offer.protocol
        for better in behind:
            assert better.expected_error <= offer.expected_error * 1.001
            assert better.local_epsilon <= offer.local_epsilon * 1.001
            assert better.bits_per_user <= offer.bits_per_user
            assert better.damage is not None
            assert offer.damage is not None
            assert better.damage.sort_key <= offer.damage.sort_key
    assert {many.candidates[index].protocol for index in shown} >= {
        "polya-shuffle",
        "geometric-local",
        "geometric-central",
    }
    assert ("geometric-shuffle", "modular") not in {
        (many.candidates[index].protocol, many.candidates[index].encoding) for index in shown
    }
    assert hidden_sentence(many, shown)[0].startswith(
        f"{len(hidden)} more candidates are not shown"
    )
    assert hidden_sentence(many, range(len(many.candidates))) == []


def test_what_is_better_in_anything_stays(many: Plan) -> None:
    base = many.choice
    for change in (
        {"expected_error": base.expected_error * 0.9, "bits_per_user": base.bits_per_user + 1},
        {"local_epsilon": base.local_epsilon * 0.9, "bits_per_user": base.bits_per_user + 1},
        {"bits_per_user": base.bits_per_user - 1, "expected_error": base.expected_error * 2},
    ):
        other = base.model_copy(update=change)
        assert not dominates(base, other)
    limited = base.model_copy(update={"damage": Damage(1.0, certified=True)})
    about = base.model_copy(update={"damage": Damage(1.0, certified=False)})
    assert not dominates(base, limited)
    assert not dominates(about, limited)
    assert dominates(limited, about)
    assert dominates(base, base.model_copy(update={"damage": None}))
    worse = base.model_copy(update={"expected_error": base.expected_error * 2})
    assert dominates(base, worse)
    assert not dominates(base.model_copy(update={"baseline": True}), worse), (
        "a baseline may not be chosen, so it hides nobody"
    )
    trusting = base.guarantee.trust.model_copy(update={"trusted": "nobody", "honest_reports": None})
    safer = worse.model_copy(
        update={"guarantee": base.guarantee.model_copy(update={"trust": trusting})}
    )
    assert not dominates(base, safer), "less trust is worth something"
    single = base.model_copy(
        update={"guarantee": base.guarantee.model_copy(update={"protects": "one person"})}
    )
    assert not dominates(single, worse), "a promise for people together is worth something"


def test_the_chosen_one_and_baselines_are_always_shown(many: Plan) -> None:
    worst = max(
        range(len(many.candidates)),
        key=lambda index: (
            many.candidates[index].expected_error * (not many.candidates[index].baseline)
        ),
    )
    shown = worth_showing(many.model_copy(update={"chosen": worst}))
    assert worst in shown
    assert all(index in shown for index, offer in enumerate(many.candidates) if offer.baseline)


# --- honest people ---


def test_ninety_percent_are_suggested_with_what_they_cost(many: Plan) -> None:
    (told,) = on_honest(many, Wishes())
    then = plan(MEAN, TARGET, 4_000, "90%", encoding="modular", protocols=["polya-shuffle"])
    assert "all 4,000 must report" in told
    assert "--honest 90% counts on 3,600 of them" in told
    assert (
        f"would then be {format_number(then.choice.expected_error)} min instead of "
        f"{format_number(many.choice.expected_error)} min" in told
    )
    assert on_honest(many, Wishes(honest="3900")) == []
    assert on_honest(many, Wishes(honest="90%")) == []


def test_a_bare_number_is_said_to_be_people() -> None:
    few = plan(Sum(Integers(0, 5)), Target(1.0, 0.0, 5), 1_000, 90, trusted="nobody")
    assert on_honest(few, Wishes(honest="90")) == [
        "--honest 90 is 90 people of 1,000; write 90% for 900 of them."
    ]
    assert on_honest(few, Wishes(honest=90)) == on_honest(few, Wishes(honest="90"))
    assert (
        on_honest(
            plan(Sum(Integers(0, 5)), Target(1.0, 0.0, 5), 1_000, 900, trusted="nobody"),
            Wishes(honest="900"),
        )
        == []
    )


def test_nobody_need_be_honest_where_nobody_is_trusted() -> None:
    assert on_honest(plan(MEAN, Target(1.0, 0.0, 10), 40, trusted="nobody"), Wishes()) == []


# --- one report, and limits ---


def test_a_loud_report_is_warned_of_and_a_cap_keeps_what_is_said(many: Plan) -> None:
    (told,) = on_one_report(many, Wishes())
    assert many.choice.local_epsilon > 8
    assert told.startswith(
        "Warning: one report alone has epsilon "
        f"{format_epsilon(many.choice.local_epsilon)}, which hides little"
    )
    assert f"a factor of {format_epsilon(math.exp(many.choice.local_epsilon))}" in told
    (error,) = re.findall(r"the expected error would be ([\d.]+) min", told)
    capped = plan(MEAN, TARGET, 4_000, max_local_epsilon=8.0)
    assert capped.choice.expected_error <= float(error) * 1.001
    assert on_one_report(capped, Wishes()) == []
    short = plan(MEAN, TARGET, 4_000, max_bits=120)
    assert short.choice.local_epsilon > 8
    (told,) = on_one_report(short, Wishes(max_bits=120))
    (name,) = re.findall(r"min \(([\w-]+), modular\) or less", told)
    assert name == "geometric-local", "what was allowed to be sent is kept"


def test_a_large_promise_is_warned_of_too() -> None:
    large = plan(Sum(Integers(0, 20)), Target(9.0, 0.0, 5), 40, trusted="nobody")
    assert on_one_report(large, Wishes())[0].startswith(
        "Warning: epsilon 9 hides little from anybody"
    )
    labels = plan(Histogram(Categories(["a", "b"])), Target(9.0, 0.0, 1), 40, trusted="nobody")
    assert (
        "the odds of two labels may shift by a factor of 8,104"
        in on_one_report(labels, Wishes())[0]
    )


def test_a_cap_names_the_least_that_can_be_reached() -> None:
    wishes = Wishes(honest="90%", max_local_epsilon=1.5)
    capped = plan(MEAN, TARGET, 400, "90%", max_local_epsilon=1.5)
    assert capped.choice.protocol == "geometric-local"
    shuffled = [offer for offer in capped.candidates if offer.trusted == "shuffler"]
    least = min(offer.local_epsilon for offer in shuffled)
    lines = on_limits(capped, wishes)
    assert (
        "the least epsilon of one report that any such candidate reaches here is "
        f"{format_epsilon(least)}" in lines[0]
    )
    best = min(shuffled, key=lambda offer: offer.expected_error)
    assert lines[1].startswith(
        "More exact, but ruled out by --max-local-epsilon 1.5: polya-shuffle, modular ("
    )
    assert f"expected error {format_number(best.expected_error)} min" in lines[1]
    assert on_limits(capped, Wishes()) == []
    short = plan(MEAN, TARGET, 400, "90%", max_bits=30)
    fewest = min(offer.bits_per_user for offer in short.candidates if offer.trusted == "shuffler")
    assert (
        f"the fewest bits that any such candidate sends are {fewest:,}"
        in on_limits(short, Wishes("90%", max_bits=30))[0]
    )
    roomy = plan(MEAN, TARGET, 400, "90%", max_local_epsilon=50.0)
    assert on_limits(roomy, Wishes("90%", max_local_epsilon=50.0)) == [], (
        "a limit that costs nothing needs no word"
    )


def test_a_limit_that_nothing_keeps_names_the_least() -> None:
    from metricshuffle.errors import InputError

    with pytest.raises(
        InputError,
        match=(
            r"least epsilon of one report that any candidate reaches here is 1 "
            r"\(geometric-local\)"
        ),
    ):
        plan(MEAN, TARGET, 400, max_local_epsilon=0.1)


# --- few people ---


def test_one_person_hears_what_more_would_do(alone: Plan) -> None:
    lead, more = on_few_people(alone, Wishes())
    assert lead.startswith("1 honest person is too few for a shuffler to help")
    error = format_number(plan(MEAN, TARGET, 10).choice.expected_error)
    assert (
        more == f"With 10 people the expected error would be {error} min (polya-shuffle, unary, "
        "relying on the shuffler)."
    )
    assert on_few_people(alone, Wishes(narrowed=True)) == []
    assert on_few_people(alone, Wishes(max_bits=20)) == []


def test_nothing_is_said_of_few_people_where_they_are_enough_or_nobody_is_trusted(
    many: Plan,
) -> None:
    assert on_few_people(many, Wishes()) == []
    assert on_few_people(plan(MEAN, Target(1.0, 0.0, 10), 5, trusted="nobody"), Wishes()) == []
    assert on_few_people(plan(MEAN, Target(1.0, 0.0, 10), 5), Wishes()) == [], (
        "without a delta it is not for lack of people"
    )


def test_labels_of_two_people_are_planned_locally() -> None:
    made = plan(
        Histogram(Categories(["a", "b", "c"])), TARGET.model_copy(update={"distance": 1.0}), 2
    )
    assert made.choice.trusted == "nobody"
    lines = advice(made, Wishes())
    assert lines[0].startswith(
        "2 honest people are too few for a shuffler to help here: nothing that relies on"
    )
    assert re.fullmatch(
        r"With 20 people the expected error would be [\d.]+ % \(.*, relying on the shuffler\)\.",
        lines[1],
    )

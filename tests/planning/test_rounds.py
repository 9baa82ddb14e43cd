"""Several rounds with the same people: joint guarantee, each calibrated to its part."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.catalogue.small_plans import SMALL, plan_of
from tests.oracles.multiset_laws import divergence, multiset_law
from tests.tables import check_all

from metricshuffle.errors import InputError, NotCertified, PlanError
from metricshuffle.planning import Plan, plan
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import Frequencies, shuffled_profile
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.queries import Histogram, Mean, Query, Sum, UserHistogram, UserLinearQuery
from metricshuffle.randomizers import KaryRandomizedResponse
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Clustered, Grid, Integers, Interval, users_of

ROUNDS = 3
CLUSTERS = UserHistogram(users_of(Clustered(2, 2, 0.3)))
LABELS = Histogram(Categories(["a", "b", "c"]))
LINE = Histogram(Integers(0, 5))
CASES: dict[str, tuple[Query, Target, int, dict[str, Any]]] = {
    "labels": (LABELS, Target(1.5, 3e-4, 1.0), 600, {"protocols": ["k-ary-randomized-response"]}),
    "labels, nobody": (
        LABELS,
        Target(1.5, 0.0, 1.0),
        600,
        {"trusted": "nobody", "protocols": ["k-ary-randomized-response"]},
    ),
    "line": (LINE, Target(1.5, 3e-4, 2.0), 1000, {"protocols": ["bounded-geometric"]}),
    "bins": (
        Histogram(Interval(0.0, 3.0), 0.5),
        Target(1.5, 3e-4, 1.0),
        1000,
        {"protocols": ["bounded-geometric"]},
    ),
    "cells": (
        Histogram(Grid(3, 3)),
        Target(1.5, 3e-4, 2.0),
        1000,
        {"protocols": ["planar-geometric"]},
    ),
    "hat": (
        Mean(Interval(0.0, 1.0)),
        Target(1.5, 3e-4, 0.25),
        20_000,
        {"protocols": ["witch-hat"]},
    ),
    "items": (
        UserHistogram(users_of(Integers(0, 3), 2)),
        Target(3.0, 3e-3, 3.0),
        60,
        {"protocols": ["item-wise"]},
    ),
    "drawn items": (
        CLUSTERS,
        Target(3.0, 3e-3, 0.3, "flat"),
        60,
        {"protocols": ["item-wise"], "draw": 2},
    ),
    "tree": (
        CLUSTERS,
        Target(1.5, 0.0, 1.0),
        60,
        {"protocols": ["tree-laplace"], "trusted": "curator"},
    ),
}


@cache
def planned(name: str, rounds: int, target: Target | None = None) -> Plan:
    query, asked, users, choices = CASES[name]
    return plan(query, asked if target is None else target, users, rounds=rounds, **choices)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_each_round_is_a_plan_of_its_part_and_the_guarantee_covers_all(name: str) -> None:
    """Calibrated as one round with epsilon/rounds and delta/rounds; stated for all."""
    several = planned(name, ROUNDS)
    target = CASES[name][1]
    part = Target(target.epsilon / ROUNDS, target.delta / ROUNDS, target.distance, target.shape)
    single = planned(name, 1, part)
    assert several.choice.protocol == single.choice.protocol
    # errors of items are simulated, and a rate that differs in its last digits takes other draws
    close = 2e-3 if single.choice.item_rate is None else 5e-2
    assert several.choice.expected_error == pytest.approx(single.choice.expected_error, rel=close)
    if single.choice.item_rate is not None:
        assert several.choice.item_rate == pytest.approx(single.choice.item_rate, rel=2e-3)
    promise = several.guarantee
    assert (promise.epsilon, promise.rounds, several.rounds) == (target.epsilon, ROUNDS, ROUNDS)
    assert promise.delta <= target.delta
    assert several.if_shuffler_colludes.rounds == ROUNDS
    assert "over all 3 rounds together" in str(promise)
    if math.isfinite(several.if_shuffler_colludes.epsilon):
        assert several.if_shuffler_colludes.epsilon == pytest.approx(
            ROUNDS * single.if_shuffler_colludes.epsilon, rel=5e-3
        )
    several.task.verify()


@pytest.mark.parametrize("name", CASES)
def test_more_rounds_than_were_planned_for_do_not_verify(name: str) -> None:
    """The same noise in one more round is not hidden by the same promise."""
    several = planned(name, ROUNDS)
    document = several.task.model_dump(mode="json", exclude={"digest"})
    document |= {"rounds": ROUNDS + 1}
    for promise in ("guarantee", "if_shuffler_colludes"):
        document[promise] |= {"rounds": ROUNDS + 1}
    forged = type(several.task).model_validate(document)
    with pytest.raises(NotCertified):
        forged.verify()


def test_rounds_of_randomized_response_are_true_by_enumeration() -> None:
    """Two rounds of three people's shuffled labels: the exact joint law is within it."""
    target = Target(1.6, 0.2, 1.0)
    made = plan(LABELS, target, 3, rounds=2, protocols=["k-ary-randomized-response"])
    assert isinstance(made.protocol, Frequencies)
    rows = np.asarray(made.protocol.randomizer.rows())
    for others in ((0, 0), (0, 1), (1, 2), (2, 2)):
        beside = [] if made.protocol.trusted == "nobody" else [rows[other] for other in others]
        laws = [multiset_law([rows[value], *beside]) for value in (0, 1)]
        twice = [
            {(*first, -1, *second): p * q for first, p in law.items() for second, q in law.items()}
            for law in laws
        ]
        assert divergence(twice[0], twice[1], target.epsilon) <= target.delta
        assert divergence(twice[1], twice[0], target.epsilon) <= target.delta


def test_rounds_of_shuffled_labels_compose_to_no_more_than_the_promise() -> None:
    """By the profile of one round; a hundredth more local epsilon would break it."""
    several = planned("labels", ROUNDS)
    assert isinstance(several.protocol, Frequencies)
    randomizer = several.protocol.randomizer
    assert isinstance(randomizer, KaryRandomizedResponse)
    assert shuffled_profile(randomizer, 600).covers_at(0.5, 1e-4, 1.0)
    more = KaryRandomizedResponse(3, 1.01 * randomizer.epsilon)
    assert not shuffled_profile(more, 600).covers_at(0.5, 1e-4, 1.0)


@check_all("rounds", [1, 2, 5])
def test_gaussian_noise_grows_with_the_root_of_the_rounds(rounds: int) -> None:
    """n Gaussian rounds are one of deviation smaller by sqrt(n); Laplace grows linearly."""
    query = UserLinearQuery.average(users_of(Integers(0, 20)))
    target = Target(1.0, 1e-6, 5.0)
    scales = {}
    for protocol in ("gaussian", "laplace"):
        made = [
            plan(query, target, 60, rounds=count, trusted="curator", protocols=[protocol])
            for count in (1, rounds)
        ]
        noises = [
            single.protocol.noise.scale
            for single in made
            if isinstance(single.protocol, NoisyAnswers)
        ]
        scales[protocol] = noises[1] / noises[0]
    assert scales["gaussian"] == pytest.approx(math.sqrt(rounds), rel=1e-3)
    assert scales["laplace"] == pytest.approx(rounds, rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_rounds_are_numbered_and_not_mixed(name: str) -> None:
    """A release names its round; rounds are not mixed, and there is no fourth of three."""
    made = planned(name, ROUNDS)
    query = made.query
    people = made.users
    if isinstance(query, UserHistogram):
        values: Any = [[0, 1]] * people
    elif isinstance(query.values_in, Grid):
        values = [(0, 1)] * people
    else:
        values = ["a"] * people if isinstance(query.values_in, Categories) else [1] * people
    release = made.run(values, Randomness.seeded(1), round=2)
    assert (release.round, release.rounds) == (2, ROUNDS)
    assert "round 2 of 3" in str(release)
    assert type(release).from_json(release.to_json()).round == 2
    for wrong in (0, 4, 1.5, True):
        with pytest.raises(InputError, match="round must be a whole number from 1 to 3"):
            made.run(values, round=wrong)  # type: ignore[arg-type]
    if made.protocol.trusted != "curator":
        first, second = (made.randomize(values[: people // 2], round=number) for number in (1, 2))
        with pytest.raises(PlanError, match="rounds are not mixed"):
            made.shuffle([first, second])


def test_a_plan_of_one_round_has_no_second() -> None:
    """Its promise covers one."""
    for name in ("mean", "labels", "users' tree"):
        with pytest.raises(InputError, match="the promise covers one round"):
            plan_of(name).task.batch(2)
    assert all(plan_of(name).rounds == 1 for name in list(SMALL)[:3])


def test_sums_over_rounds_are_composed_more_tightly_than_their_parts() -> None:
    """Noise of sums is composed by its own law, at most that of the split target."""
    query = Sum(Integers(0, 3))
    target = Target(1.0, 1e-4, 1.0)
    several = plan(query, target, 40, rounds=2, encoding="modular", protocols=["polya-shuffle"])
    single = plan(
        query, Target(0.5, 5e-5, 1.0), 40, encoding="modular", protocols=["polya-shuffle"]
    )
    assert several.choice.expected_error <= single.choice.expected_error * (1 + 1e-6)
    assert several.guarantee.rounds == 2

"""Centroids of true places: printed errors, intervals and privacy hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pyproj import Geod

import metricshuffle as ms
from metricshuffle.accounting.sums.rounded_reports import rounded_rate
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.planning.error_simulation import simulate
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.centroid import GROUND_TEXT
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.spaces.places import POINTS_PER_DEGREE

GEOD = Geod(ellps="WGS84")
AUSTIN = (30.1, -98.1, 30.55, -97.5)
PLACES = ms.Places(*AUSTIN)
QUERY = ms.Centroid(PLACES)
PEOPLE: dict[str, Callable[[int], np.ndarray]] = {
    "spread": lambda count: np.random.default_rng(1).uniform(AUSTIN[:2], AUSTIN[2:], (count, 2)),
    "clustered": lambda count: np.random.default_rng(2).normal(
        (30.27, -97.74), (0.004, 0.002), (count, 2)
    ),
    "at one place": lambda count: np.tile([30.2712345, -97.7412345], (count, 1)),
    "in the corners": lambda count: np.array(AUSTIN)[
        np.random.default_rng(3).integers(0, 2, (count, 2)) * 2 + (0, 1)
    ],
}


def planned(
    users: int = 2000,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    distance: float = 5000.0,
    flat: bool = False,
    **more: Any,
) -> ms.Plan:
    chosen: dict[str, Any] = {
        "honest": 0.9,
        "protocols": ["polya-shuffle"],
        "encoding": "modular",
        **more,
    }
    query = chosen.pop("query", QUERY)
    return ms.plan(
        query, ms.Target(epsilon, delta, distance, "flat" if flat else "linear"), users, **chosen
    )


def metres(first: Any, second: Any) -> float:
    return float(GEOD.inv(first[1], first[0], second[1], second[0])[2])


def measured(plan: ms.Plan, people: np.ndarray, runs: int) -> tuple[float, float, np.ndarray]:
    """Mean distance to the true mean place, its standard error, and the coverage."""
    truth = people.mean(axis=0)
    errors = []
    held = np.zeros(2)
    for _ in range(runs):
        release = plan.run(people)
        ends = np.array(release.interval())
        held += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        errors.append(metres(release.value, truth))
    return float(np.mean(errors)), float(np.std(errors) / math.sqrt(runs)), held / runs


# Errors and intervals


FINE = 250.0
COARSE = 1000.0


@pytest.mark.parametrize(
    ("people", "cell"),
    [
        ("spread", FINE),
        ("clustered", COARSE),
        ("at one place", FINE),
        ("in the corners", COARSE),
        pytest.param("spread", COARSE, marks=pytest.mark.slow),
        pytest.param("clustered", FINE, marks=pytest.mark.slow),
        pytest.param("at one place", COARSE, marks=pytest.mark.slow),
        pytest.param("in the corners", FINE, marks=pytest.mark.slow),
    ],
)
@pytest.mark.thorough
def test_intervals_hold_and_errors_are_as_printed(people: str, cell: float) -> None:
    """Joint 95 %: each interval covers in 95 to 100 of 100, for any cell and people."""
    plan = planned(granularity=cell)
    error, spread, held = measured(plan, PEOPLE[people](2000), 400)
    assert plan.choice.expected_error == pytest.approx(error, rel=0.15)
    assert abs(error - plan.choice.expected_error) < 4.5 * spread
    assert np.all(held > 0.945)
    assert np.all(held < 0.999)


def test_errors_are_as_printed_in_a_few_runs() -> None:
    """Snapping to the middles of cells of a kilometre would be off by hundreds of metres here."""
    plan = planned(granularity=1000.0)
    error, spread, held = measured(plan, PEOPLE["at one place"](2000), 30)
    assert abs(error - plan.choice.expected_error) < 5.0 * spread
    assert np.all(held > 0.8)


def test_rounding_adds_at_most_a_hundredth_of_the_variance() -> None:
    alone: dict[str, Any] = {
        "protocols": ["geometric-central"],
        "trusted": "curator",
        "honest": None,
    }
    few: dict[str, Any] = {}
    for users, rounds, more in ((1, 1, alone), (50, 1, few), (30_000, 3, few)):
        plan = planned(users, rounds=rounds, **more)
        noise = [
            part.model_copy(update={"granularity": 1, "span": part.top})
            for part in plan.protocol.randomizers  # type: ignore[attr-defined]
        ]
        draws = plan.protocol.noise_draws(users)  # type: ignore[attr-defined]
        assert 0.25 * users <= 0.0101 * noise[0].total_variance(draws, users)
        assert plan.protocol.step >= 0.3 * rounds * 5000.0 / math.sqrt(
            users
        )  # and no finer than that takes


def test_a_simulation_says_the_same() -> None:
    plan = planned()
    result = simulate(plan, runs=4000)
    assert result.expected_error == plan.choice.expected_error
    assert abs(result.mean_absolute_error - result.expected_error) < 5.0 * result.standard_error
    assert result.coverage_95 is not None
    assert 0.94 < result.coverage_95 < 0.965


def test_the_answer_is_the_mean_latitude_and_longitude() -> None:
    """With a large epsilon, the mean in degrees, in a box where projections distort it."""
    wide = ms.Centroid(ms.Places(35.0, -20.0, 70.0, 60.0, "km"))
    plan = planned(
        1000,
        query=wide,
        epsilon=1000.0,
        delta=0.0,
        distance=0.001,
        protocols=["geometric-central"],
        trusted="curator",
        honest=None,
    )
    people = np.random.default_rng(4).uniform((35.0, -20.0), (70.0, 60.0), (1000, 2))
    release = plan.run(people)
    assert np.allclose(release.value, people.mean(axis=0), atol=1e-10)
    assert "middle latitude, 52.5 degrees" in str(release)
    frame = release.to_frame("pandas")
    assert frame["label"].tolist() == ["latitude", "longitude"]
    assert frame["value"].tolist() == list(release.value)
    document = json.loads(release.to_json())
    assert document["granularity"] == plan.protocol.step
    assert ms.Release.from_json(release.to_json()).value == release.value


# Privacy


def place_loss(plan: ms.Plan, first: Any, second: Any) -> float:
    """Largest log ratio of a curator's discrete Laplace release, by brute force."""
    protocol = plan.protocol
    assert isinstance(protocol, Sums)
    numbers = plan.query.inputs([first, second], protocol.step).numbers
    total = 0.0
    for axis, randomizer in enumerate(protocol.randomizers):
        assert isinstance(randomizer, AdditiveRandomizer)
        parts = [Fraction(int(number), randomizer.granularity) for number in numbers[:, axis]]
        below = min(math.floor(part) for part in parts)
        seen = np.arange(below - 3, below + 5 + math.ceil(abs(float(parts[0] - parts[1]))))
        laws = []
        for part in parts:
            low = math.floor(part)
            over = float(part - math.floor(part))
            laws.append(
                (1.0 - over) * np.exp(-randomizer.rate * abs(seen - low))
                + over * np.exp(-randomizer.rate * abs(seen - low - 1))
            )
        total += float(np.max(np.log(laws[0] / laws[1])))
    return total


@pytest.mark.parametrize("box", [AUSTIN, (-34.2, 18.2, -33.6, 19.1), (50.0, -10.0, 70.0, 40.0)])
def test_the_promise_is_about_metres_on_the_ground(box: tuple[float, float, float, float]) -> None:
    query = ms.Centroid(ms.Places(*box))
    plan = planned(
        1, query=query, delta=0.0, protocols=["geometric-central"], trusted="curator", honest=None
    )
    generator = np.random.default_rng(6)
    largest = 0.0
    low = np.array(box[:2])
    high = np.array(box[2:])
    rate = 1.0 / 5000.0
    latitude, longitude = query.places.metres_per_degree  # type: ignore[union-attr]
    for size in (1e-3, 1.0, 30.0, 400.0, 4900.0):
        for _ in range(60):
            first = (
                generator.uniform(low, high)
                if generator.random() < 0.5
                else np.array([box[2 if box[2] > 0 else 0], box[1]])
            )
            move = (
                generator.choice([-1.0, 1.0], 2)
                * size
                / math.sqrt(2.0)
                / np.array([latitude, longitude])
            )
            second = np.clip(first + move, low, high)
            ground = metres(first, second)
            if 0.0 < ground <= 5000.0:
                cost = place_loss(plan, first, second)
                assert cost <= rate * (ground + 1e-7)
                largest = max(largest, cost / (rate * ground))
    assert largest > (0.9 if box[3] - box[1] < 5.0 else 0.5)


def test_the_sentence_says_what_distances_are_between() -> None:
    plan = planned()
    assert plan.task.guarantee.between == plan.task.if_shuffler_colludes.between == GROUND_TEXT
    assert "cells" not in str(plan.task.guarantee)
    assert plan.task.guarantee.protects == "people together"
    assert "units of" in " ".join(plan.protocol.remarks(QUERY, plan.target, plan.honest, 1))
    plan.task.verify()


def forged(plan: ms.Plan, **parts: Any) -> ms.Task:
    """The same promise, with other noise or other units."""
    protocol = plan.protocol
    assert isinstance(protocol, Sums)
    update = {name: value for name, value in parts.items() if name in ("step", "rounding")}
    inside = {name: value for name, value in parts.items() if name not in update}
    randomizers = tuple(part.model_copy(update=inside) for part in protocol.randomizers)
    return ms.Task(
        **{
            **dict(plan.task),
            "digest": "",
            "protocol": protocol.model_copy(update={"randomizers": randomizers, **update}),
        }
    )


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"protocols": ["geometric-central"], "trusted": "curator", "delta": 0.0},
        {"flat": True},
        {"trusted": "aggregator", "delta": 0.0},
        {"protocols": ["geometric-local"], "trusted": "nobody"},
        {"rounds": 3},
    ],
)
def test_forged_tasks_are_refused(more: dict[str, Any]) -> None:
    plan = planned(60, **more)
    forged(plan).verify()
    protocol = plan.protocol
    assert isinstance(protocol, Sums)
    first = protocol.randomizers[0]
    assert isinstance(first, AdditiveRandomizer)
    tempting = math.expm1(first.rate)  # what rate * unit / sqrt(2) would be
    assert first.rate < tempting
    for parts, told in (
        ({"rate": tempting}, "claims more than is true"),
        ({"granularity": first.granularity // 2}, "shorter than"),
        ({"step": protocol.step * 2.0}, "shorter than"),
        ({"rounding": None}, "rounded at random"),
        ({"span": 5}, "steps"),
    ):
        with pytest.raises(NotCertified, match=told):
            forged(plan, **parts).verify()
    if protocol.trusted in ("shuffler", "aggregator"):
        with pytest.raises(NotCertified):
            forged(plan, shape=first.shape * Fraction(9, 10)).verify()


def test_the_rate_is_log1p() -> None:
    plan = planned(60)
    unit = plan.protocol.step
    expected = math.log1p(1.0 / 5000.0 * unit / math.sqrt(2.0))
    assert plan.choice.rate == pytest.approx(expected, rel=1e-8)
    assert plan.choice.rate is not None
    assert plan.choice.rate <= rounded_rate(1.0 / 5000.0 * unit / math.sqrt(2.0))


@pytest.mark.parametrize("name", ["randomized-response-shuffle"])
def test_what_is_not_proved_is_not_offered(name: str) -> None:
    with pytest.raises(InputError, match="rounded at random"):
        planned(200, protocols=[name], encoding="unary")
    bounded = planned(
        30,
        encoding="unary",
        padding="bounded",
        delta=1e-3,
        protocols=["polya-shuffle", "geometric-local"],
    )
    assert all(row.protocol != "polya-shuffle" for row in bounded.candidates)


def test_unary_messages_and_their_padding() -> None:
    plan = planned(40, encoding="unary", delta=1e-3, honest=None)
    assert plan.protocol.encoding == "unary"
    plan.task.verify()
    release = plan.run(PEOPLE["clustered"](40))
    assert release.reports == 40
    with pytest.raises(NotCertified):
        forged(plan, radius=0).verify()


def test_a_flat_promise_over_the_whole_box() -> None:
    """Noise by the sides of the box where shorter; the guarantee is then about one person."""
    long = ms.Centroid(ms.Places(30.1, -98.1, 30.11, -97.5))
    plan = planned(
        60, query=long, distance=57_000.0, flat=True, delta=0.0, trusted="aggregator", honest=None
    )
    assert plan.task.guarantee.protects == "one person"
    tops = sum(part.top for part in plan.protocol.randomizers)  # type: ignore[attr-defined]
    assert plan.choice.rate == pytest.approx(math.log1p(1.0 / tops), rel=1e-6)
    plan.task.verify()
    short = planned(60, query=long, distance=5000.0, flat=True)
    assert short.task.guarantee.protects == "people together"
    short.task.verify()


# What anybody may ask


@pytest.mark.parametrize(
    "more",
    [
        {"users": 1, "trusted": "nobody", "protocols": ["geometric-local"]},
        {"users": 1, "trusted": "curator", "protocols": ["geometric-central"]},
        {"users": 2, "trusted": "nobody", "protocols": ["geometric-local"]},
        {"users": 2, "trusted": "aggregator", "delta": 0.0, "honest": None},
        {"users": 40, "rounds": 3},
        {"users": 40, "distance": 1e-3},
        {"users": 40, "distance": PLACES.diameter},
        {
            "users": 40,
            "epsilon": 1e-4,
            "query": ms.Centroid(ms.Places(46.9, 7.4, 46.900009, 7.400013)),
            "distance": 1.0,
        },
        {"users": 40, "query": ms.Centroid(ms.Places(-85.0, -89.0, 85.0, 89.9)), "distance": 1e7},
        {"users": 40, "query": ms.Centroid(ms.Places(-1e-9, -1e-9, 1e-9, 1e-9)), "distance": 1e-5},
        {"users": 40, "max_local_epsilon": 4.0, "protocols": None},
        {"users": 40, "granularity": 1.0},
        {"users": 40, "epsilon": 500.0, "distance": 0.01},
    ],
)
def test_odd_questions_have_true_answers(more: dict[str, Any]) -> None:
    """A wrong scale would put the mean place far outside of ten times its interval."""
    plan = planned(**{"users": 40, **({"honest": None} if more["users"] < 3 else {}), **more})
    plan.task.verify()
    places = plan.query.values_in
    assert isinstance(places, ms.Places)
    corners = np.array([(places.south, places.west), (places.north, places.east)])
    people = np.random.default_rng(8).uniform(corners[0], corners[1], (plan.users, 2))
    people[0], people[-1] = corners
    for held in (people, np.tile(corners[1], (plan.users, 1))):
        release = plan.run(held)
        ends = np.array(release.interval(0.999999))
        truth = held.mean(axis=0)
        assert np.all((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        assert str(release)
        assert ms.Release.from_json(release.to_json()).interval() == release.interval()
    assert ms.Plan.from_json(plan.to_json()).task.digest == plan.task.digest


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="beyond the diameter"):
        planned(distance=80_000.0)
    with pytest.raises(InputError, match=r"Centroid\(Places\(south, west, north, east\)\)"):
        planned(query=ms.Centroid(ms.Grid.from_box(*AUSTIN, 1000.0)))
    with pytest.raises(InputError, match="Places"):
        ms.Centroid(ms.Integers(0, 5))
    with pytest.raises(ms.errors.DomainError, match="lies outside"):
        planned(40).run([(30.2, -97.7)] * 39 + [(29.0, -97.7)])
    with pytest.warns(ms.errors.InputWarning, match="1 of 40 values"):
        release = planned(40).run([(30.2, -97.7)] * 39 + [(29.0, -97.7)], clamp=True)
    assert release.reports == 40


def test_old_tasks_over_cells_of_a_map_keep_their_meaning() -> None:
    """Old files with cells of a map keep noise, digest and texts, and can be read."""
    grid = ms.Grid.from_box(46.94, 7.42, 46.96, 7.46, 800.0)
    noise = {"shape": Fraction(1, 40), "rate": 0.75, "granularity": 1}
    randomizers = tuple(
        AdditiveRandomizer(span=span, **noise) for span in (grid.width - 1, grid.height - 1)
    )
    protocol = Sums(
        name="polya-shuffle",
        trusted="aggregator",
        step=800.0,
        randomizers=randomizers,
        modulus=10_001,
    )
    made = ms.Task.of(ms.Centroid(grid), protocol, ms.Target(4, 1e-6, 1600), 40)
    fields = {name: getattr(made, name) for name in type(made).model_fields if name != "digest"}
    task = ms.Task(**fields | {"damage": None})  # old tasks claim none
    assert "rounding" not in json.loads(task.to_json())["protocol"]
    assert task.guarantee.between == "cells, in a straight line"
    assert ms.Task.from_json(task.to_json()).digest == task.digest == OLD_DIGEST
    task.verify()


OLD_DIGEST = "3ef90a18624f0e7745c425e093fab207127362179803ae31227764d97f6abe38"


def test_points_are_fine_enough_that_nobody_can_tell() -> None:
    """A promise about places is one about points of 2^-54 degrees: 6e-12 m."""
    assert 112_000.0 / POINTS_PER_DEGREE < 1e-11


def test_conditions_of_random_rounding() -> None:
    protocol = planned(60).protocol
    assert isinstance(protocol, Sums)
    accounts = protocol.accounts(ms.Target(1.0, 1e-6, 5000.0), 1)
    with pytest.raises(ConditionError, match="shape 1 or more"):
        accounts.noise_profile(Polya(Fraction(9, 10), 0.01))

"""Simulated errors agree with the stated ones and with real releases, for every query."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.catalogue.small_plans import SMALL, plan_of, truth_of, values_of

from metricshuffle.errors import BatchTooSmall, InputError
from metricshuffle.planning import Plan, plan, simulate
from metricshuffle.planning.error_simulation import Simulation
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Centroid, Mean, Sum, UserHistogram, UserLinearQuery
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.randomness import Randomness
from metricshuffle.simulation import simulated_releases
from metricshuffle.simulation.fast_draws import distance_of
from metricshuffle.simulation.population import Population, zipf_shares
from metricshuffle.spaces import Clustered, Grid, Integers, users_of

pytestmark = pytest.mark.thorough

CASES: list[dict[str, Any]] = [
    {"query": Mean(Integers(0, 50)), "users": 50, "encoding": "modular"},
    {"query": Mean(Integers(0, 50)), "users": 50, "encoding": "modular", "granularity": 5},
    {"query": Sum(Integers(0, 50)), "users": 10**9, "encoding": "modular"},
    {
        "query": Sum(Integers(0, 3)),
        "users": 50,
        "encoding": "unary",
        "target": Target(3.0, 1e-2, 3),
        "protocols": ["randomized-response-shuffle"],
    },
    {
        "query": Sum(Integers(0, 50)),
        "users": 30,
        "encoding": "modular",
        "granularity": 5,
        "trusted": "curator",
        "protocols": ["geometric-central"],
    },
    {"query": Centroid(Grid(20, 9, cell=3.0)), "users": 50, "encoding": "modular"},
    {
        "query": Sum(Integers(0, 10**6)),
        "users": 10**6,
        "encoding": "modular",
        "target": Target(1.0, 1e-6, 10**4),
        "protocols": ["geometric-local"],
    },
]


@pytest.mark.parametrize("case", CASES)
def test_errors_and_coverage_of_sums(case: dict[str, Any]) -> None:
    """Mean errors are as expected; intervals cover as stated, or more after rounding."""
    choices = {"target": Target(1.0, 1e-6, 6)} | case
    query, target, users = (choices.pop(key) for key in ("query", "target", "users"))
    made = plan(query, target, users, **choices)
    simulated = simulate(made, 4000)
    assert simulated.expected_error == made.choice.expected_error
    assert simulated.mean_absolute_error == pytest.approx(
        simulated.expected_error, abs=4.5 * simulated.standard_error, rel=0.005
    )
    assert made.choice.standard_error is not None
    assert simulated.root_mean_square_error <= made.choice.standard_error * 1.1
    assert simulated.coverage_95 is not None
    assert simulated.coverage_95 >= 0.935
    if made.granularity == 1 and users < 10**6 and query.axes == 1:
        assert simulated.coverage_95 <= 0.985


@pytest.mark.parametrize("name", SMALL)
def test_every_query_is_simulated(name: str) -> None:
    """Mean errors agree to four standard errors, and 95 % intervals cover 93 % at least.

    A WitchHat's expected error is that of people at an end of the range, and a bound for others;
    that of users' items is itself the mean of a few runs, whose own error counts too. The expected
    error of a quantile or spread is that of the kind of people with the largest one.
    """
    made = plan_of(name)
    runs = 300 if isinstance(made.query, UserHistogram) else 1500
    simulated = simulate(made, runs, Randomness.seeded(f"simulated {name}"))
    assert (simulated.runs, simulated.users) == (runs, made.users)
    assert simulated.expected_error == pytest.approx(made.choice.expected_error, rel=1e-9)
    room = 4.0 * simulated.standard_error
    if SMALL[name].protocol == "witch-hat" or isinstance(made.query, LineQuery):
        assert (
            0.3 * simulated.expected_error
            < simulated.mean_absolute_error
            <= simulated.expected_error + room
        )
    else:
        if isinstance(made.query, UserHistogram):
            room *= math.sqrt(1.0 + runs / 96)
        rounded = 0.02 if SMALL[name].protocol == "randomized-response-shuffle" else 0.01
        assert simulated.mean_absolute_error == pytest.approx(
            simulated.expected_error, abs=room, rel=rounded
        )
    assert simulated.mean_absolute_error <= simulated.root_mean_square_error
    assert (1.0 if simulated.coverage_95 is None else simulated.coverage_95) >= 0.93


REAL = [
    "sum",
    "mean of reals",
    "hat, nobody",
    "centroid",
    "labels",
    "bins",
    "cells",
    "users' tree",
    "users' items",
    "users' table",
]


@pytest.mark.parametrize("name", REAL)
def test_simulated_errors_are_those_of_real_releases(name: str) -> None:
    """Mean errors of real releases by all roles agree with the simulated ones."""
    made = plan_of(name)
    values = values_of(name)
    source = Randomness.seeded(f"real {name}")
    truth = truth_of(name, values)
    errors = []
    runs = 60
    for _ in range(runs):
        release = made.run(values, source)
        estimate, people = release.estimate, release.reports
        if isinstance(made.query, UserHistogram):
            errors.append(distance_of(made.query.people, np.array(release.value["share"]), truth))
        elif isinstance(made.query, SummedQuery):
            told: Any = release.plane.value if release.plane is not None else release.value
            errors.append(float(np.linalg.norm(np.atleast_1d(told) - truth)))
        else:
            errors.append(float(np.abs(estimate.totals / people - truth).mean()))
    if isinstance(made.query, UserHistogram):
        simulated = simulate(made, 300, people=values)
    elif made.query.shared:
        simulated = simulate(made, 300, shares=truth)
    else:
        simulated = simulate(made, 1500)
    spread = math.hypot(np.std(errors) / math.sqrt(runs), simulated.standard_error)
    assert (
        abs(np.mean(errors) - simulated.mean_absolute_error)
        <= 4.5 * spread + 0.05 * simulated.mean_absolute_error
    )


def test_fewer_people_than_planned() -> None:
    """As many as the guarantee covers, and no fewer."""
    made = plan(Mean(Integers(0, 50)), Target(1.0, 1e-6, 6), 50, 40, encoding="modular")
    assert simulate(made, 10, users=45).users == 45
    assert simulate(made, 1).runs == 1
    assert simulate(made, 1).standard_error == math.inf
    with pytest.raises(BatchTooSmall):
        simulate(made, 10, users=39)


def test_a_task_is_simulated_like_its_plan_and_a_seed_makes_it_again() -> None:
    """Seeded by default, and by whatever source is given."""
    for name in ("mean", "labels", "users' tree"):
        made = plan_of(name)
        assert simulate(made.task, 20) == simulate(made, 20)
        seeded: list[Simulation] = [
            simulate(made, 20, Randomness.seeded(seed)) for seed in ("a", "a", "b")
        ]
        assert seeded[0] == seeded[1] != seeded[2]


def test_wrong_simulations_are_refused() -> None:
    """Runs, users, shares and people that make no sense, each by its name."""
    items = plan_of("users' items")
    means = plan_of("mean")
    for runs in (0, True, 1.5):
        with pytest.raises(InputError, match="runs must be"):
            simulate(items, runs)  # type: ignore[arg-type]
    wrong: list[NDArray[np.float64]] = [
        np.ones(5),
        np.array([1.0, 1, 1, 1, 1, -1]),
        np.zeros(6),
        np.full(6, np.nan),
    ]
    for shares in wrong:
        with pytest.raises(InputError, match="shares must be 6 numbers"):
            simulate(items, 2, shares=shares)
    for users in (0, "many"):
        with pytest.raises(InputError, match="users must be"):
            simulate(items, 2, users=users)  # type: ignore[arg-type]
    with pytest.raises(BatchTooSmall):
        simulate(items, 2, users=10)
    for choices in ({"shares": [1.0, 2.0]}, {"people": [[0]] * 40}):
        with pytest.raises(InputError, match="does not depend on what people hold"):
            simulate(means, 2, **choices)
    with pytest.raises(InputError, match="does not depend on what people hold"):
        simulate(plan_of("labels"), 2, people=[["red"]] * 600)


# --- users' items ---

SPACE = Clustered(2, 3, 0.2)
SHARES = np.array([0.4, 0.2, 0.1, 0.1, 0.1, 0.1])


def real_errors(made: Plan, held: Any, runs: int) -> NDArray[np.float64]:
    assert isinstance(made.query, UserHistogram)
    people = made.query.people
    source = Randomness.seeded("real")
    truth = people.histograms(held).mean(axis=0)
    return np.array(
        [
            distance_of(people, np.array(made.run(held, source).value["share"]), truth)
            for _ in range(runs)
        ]
    )


@pytest.mark.parametrize("protocol", ["tree-laplace", "item-wise"])
def test_users_drawn_from_shares_are_as_good_as_those_who_hold_them(protocol: str) -> None:
    """The same error for people drawn from the shares as for real people who have them."""
    made = plan(
        UserHistogram(users_of(Integers(0, 5), 5)),
        Target(2.0, 1e-3, 5.0),
        300,
        protocols=[protocol],
    )
    held = np.random.default_rng(0).choice(6, size=(300, 5), p=SHARES)
    real = real_errors(made, held, 100)
    simulated = simulate(made, 400, people=held)
    assert (simulated.users, simulated.runs) == (300, 400)
    error = math.hypot(real.std() / 10.0, simulated.standard_error)
    assert abs(simulated.mean_absolute_error - real.mean()) < 4.0 * error
    drawn = simulate(made, 400, Randomness.seeded(4), shares=SHARES)
    assert drawn.mean_absolute_error == pytest.approx(simulated.mean_absolute_error, rel=0.15)
    assert (
        simulated.mean_absolute_error
        < simulated.root_mean_square_error
        < 2.0 * simulated.mean_absolute_error
    )


def test_drawing_samples_is_part_of_the_error() -> None:
    """With little noise the error is that of drawing 2 items from each of 50 users."""
    made = plan(
        UserHistogram(users_of(SPACE)),
        Target(40.0, 1e-2, 0.1, "flat"),
        50,
        protocols=["item-wise"],
        draw=2,
    )
    held = np.random.default_rng(0).choice(6, size=(50, 40))
    real = real_errors(made, held, 60)
    assert made.choice.expected_error == pytest.approx(real.mean(), rel=0.3)
    assert simulate(made, 200, people=held).mean_absolute_error == pytest.approx(
        real.mean(), rel=0.15
    )


def test_expected_errors_of_linear_queries_are_exact() -> None:
    """By formula: that of one Laplace number, and of the sum of five hundred."""
    query = UserLinearQuery(users_of(SPACE), np.array([0.0, 0.1, 0.2, 0.7, 0.9, 1.0]))
    made = plan(query, Target(2.0, 1e-6, 1.0), 500, trusted="curator")
    scale = query.constant_in("l1") / 2.0
    errors = {(offer.protocol, offer.trusted): offer.expected_error for offer in made.candidates}
    assert errors["laplace", "curator"] == pytest.approx(scale / 500, rel=1e-9)
    assert errors["laplace", "nobody"] == pytest.approx(
        scale * 2.0 / math.sqrt(math.pi * 500) * (1 - 1 / 4000), rel=1e-6
    )
    assert (made.choice.protocol, made.choice.trusted) == ("laplace", "curator")
    simulated = simulate(made, 4000)
    assert (
        abs(simulated.mean_absolute_error - simulated.expected_error)
        < 4.0 * simulated.standard_error
    )


def test_a_metric_without_a_tree_is_measured_by_transport() -> None:
    """From one corner of a grid to the other is the diagonal."""
    people = users_of(Grid(3, 3, 1.0), 2)
    corner = np.eye(9)[0]
    opposite = np.eye(9)[8]
    assert distance_of(people, corner, opposite) == pytest.approx(math.sqrt(8.0), abs=1e-6)
    made = plan(UserHistogram(people), Target(2.0, 1e-3, 1.0), 50, protocols=["share-laplace"])
    assert 0.0 < simulate(made, 5).mean_absolute_error < math.sqrt(8.0)


def test_the_solver_measures_a_few_releases_of_many_points_and_nested_squares_tell_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Larger errors of later releases show in the mean without the solver."""
    people = users_of(Grid(18, 18, 50.0), 2)
    generator = np.random.default_rng(4)
    truth = np.full(324, 1.0 / 324)

    def release(heaped: float) -> Any:
        heap = np.zeros((18, 18))
        row, column = generator.integers(0, 12, 2)
        heap[row : row + 6, column : column + 6] = generator.random((6, 6))
        return (1.0 - heaped) * truth + heaped * heap.ravel() / heap.sum(), truth

    near, far = (
        [release(0.1) for _ in range(simulated_releases.SOLVER_RUNS)],
        [release(0.3) for _ in range(12)],
    )
    exact = [distance_of(people, *pair) for pair in (*near, *far)]
    solved: list[float] = []

    def counted_distance(*pair: Any) -> float:
        solved.append(distance_of(*pair))
        return solved[-1]

    monkeypatch.setattr(simulated_releases, "distance_of", counted_distance)
    assert simulated_releases.mean_distance(people, [*near, *far]) == pytest.approx(
        np.mean(exact), rel=0.15
    )
    assert np.mean(exact) > 2.0 * np.mean(exact[: simulated_releases.SOLVER_RUNS])
    assert sorted(solved) == sorted(
        exact[: simulated_releases.SOLVER_RUNS]
    )  # (threads end when they do)
    few = users_of(Grid(3, 3, 1.0), 2)
    assert simulated_releases.mean_distance(
        few, [(np.eye(9)[0], np.eye(9)[place]) for place in (1, 2, 8, 0, 0, 8)]
    ) == pytest.approx((1 + 2 + 2 * math.sqrt(8.0)) / 6, abs=1e-6)
    assert simulated_releases.mean_distance(people, [(truth, truth)] * 9) == 0.0


def test_crowds() -> None:
    """Synthetic people hold what they should; real ones count the same at any size."""
    generator = np.random.default_rng(0)
    crowd = Population.drawn(SHARES, 1000, 7, generator)
    assert crowd.sampled.sum() == 7000
    assert crowd.single_items.sum() == 1000
    assert np.array_equal(crowd.sampled / 7000, crowd.truth)
    drawn = Population.drawn(SHARES, 1000, 7, generator, samples=3)
    assert drawn.sampled.sum() == 3000
    assert not np.array_equal(drawn.sampled / 3000, drawn.truth)
    real = Population.of(users_of(SPACE), [[0] * 99, [5], [1, 2]], 2, generator)
    np.testing.assert_allclose(
        real.truth, np.array([1, 0.5, 0.5, 0, 0, 1]) / 3
    )  # users count the same, not items
    assert real.sampled[[0, 5]].tolist() == [2, 2]
    assert real.sampled.sum() == 6
    assert real.sampled[[1, 2]].tolist() == [1, 1]
    shares = zipf_shares(5, generator)
    np.testing.assert_allclose(np.sort(shares)[::-1] / shares.max(), 1.0 / np.arange(1, 6))
    with pytest.raises(InputError, match="at least one point"):
        zipf_shares(0, generator)


def test_people_who_hold_just_as_many_items_as_are_drawn_draw_them_too() -> None:
    """Drawing is with replacement, as in a release, so the error is larger."""
    people = users_of(Clustered(3, 4, 0.25))
    made = plan(
        UserHistogram(people),
        Target(60.0, 1e-2, 0.5, "flat"),
        50,
        protocols=["item-wise"],
        draw=3,
    )
    held = [[(user + item) % 12 for item in range(3)] for user in range(50)]
    generator = np.random.default_rng(0)
    drawn = [Population.of(people, held, 3, generator).sampled for _ in range(200)]
    exact = Population.of(people, held, 3, generator, draws=False).sampled
    assert np.array_equal(exact, np.bincount(np.concatenate(held), minlength=12))
    assert np.std([one[0] for one in drawn]) > 1.0
    found = simulate(made, 200, people=held)
    # 50 users draw three of their three: the drawing alone is off by more than this
    assert found.mean_absolute_error > 0.02
    with pytest.raises(InputError, match="exactly 4 items"):
        Population.of(people, held, 4, generator, draws=False)


def test_plans_say_for_whose_items_an_error_is() -> None:
    """Even, Zipf and one-point items: three errors in plan and release."""
    made = plan(
        UserHistogram(users_of(Clustered(3, 4, 0.25), 4)),
        Target(1.0, 1e-6, 0.5),
        2000,
        protocols=["item-wise"],
    )
    others = made.choice.other_errors
    assert list(others) == ["spread by Zipf's law", "all on one point"]
    assert others["all on one point"] < 0.7 * made.choice.expected_error
    for share, spread in ((np.eye(12)[3], "all on one point"), (None, None)):
        told = made.choice.expected_error if spread is None else others[spread]
        assert simulate(made, 60, shares=share).mean_absolute_error == pytest.approx(told, rel=0.25)
    assert "users whose items are spread evenly over all points; item-wise is off by" in str(made)
    assert "for items spread evenly:" in str(made.run([[0, 1, 2, 3]] * 2000, Randomness.seeded(1)))
    assert plan(Sum(Integers(0, 5)), Target(1.0, 1e-6, 1.0), 100).choice.other_errors == {}


def test_a_full_replacement_that_is_certified_is_told() -> None:
    """The rate extends beyond the stated distance; a flat target does not."""
    people = users_of(Clustered(3, 4, 0.25), 4)
    linear = plan(UserHistogram(people), Target(1.0, 1e-6, 0.1), 2000, protocols=["item-wise"])
    assert "is hidden only at epsilon 10 (delta 1e-06)" in linear.task.full_replacement
    assert linear.task.full_replacement in str(linear)
    flat = plan(
        UserHistogram(people), Target(1.0, 1e-6, 0.1, "flat"), 2000, protocols=["item-wise"]
    )
    assert "is NOT hidden" in flat.task.full_replacement

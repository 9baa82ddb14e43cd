"""Joint cost of releases, against laws composed by enumeration."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from tests.catalogue.planned_tasks import load_task

from metricshuffle.errors import NotCertified
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.planning import plan
from metricshuffle.planning.costs.joint_cost import joint_cost
from metricshuffle.planning.costs.task_cost import (
    DominatingPairProfile,
    TaskCost,
    composed_epsilon,
    curve_epsilons,
)
from metricshuffle.privacy.dominating_pair import dominating_pair
from metricshuffle.privacy.profile import PureProfile
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Histogram, Sum
from metricshuffle.spaces import Categories, Integers
from metricshuffle.tasks import Task

Law = NDArray[np.float64]
Pair = tuple[Law, Law]


@pytest.fixture(scope="module")
def bits() -> Task:
    """Three rounds of flipped bits of 30 people with 0..3, whose law is explicit."""
    return plan(
        Sum(Integers(0, 3, "h")),
        Target(2, 1e-4, 3),
        30,
        rounds=3,
        protocols=["randomized-response-shuffle"],
    ).task


@pytest.fixture(scope="module")
def coins() -> Task:
    """One of two labels from 40 people."""
    return plan(
        Histogram(Categories(["a", "b"])),
        Target(1.5, 1e-4, 1),
        40,
        protocols=["k-ary-randomized-response"],
    ).task


def ones(held: int, bits: int, flip: float) -> Law:
    """The law of the number of ones among `bits` flipped bits of which `held` are ones."""
    kept = stats.binom.pmf(np.arange(held + 1), held, 1.0 - flip)
    flipped = stats.binom.pmf(np.arange(bits - held + 1), bits - held, flip)
    return np.convolve(kept, flipped)


def pairs_of(task: Task, held: float) -> Pair:
    """Counts of one round of flipped bits, or coins, with and without one move.

    A share `held` of the others hold ones.
    """
    if task.query.kind == "sum":
        span = 3
        flip = task.protocol.randomizers[0].flip  # type: ignore[attr-defined]
        people = task.honest
    else:
        span = 1
        flip = 1.0 / (1.0 + math.exp(task.protocol.randomizer.epsilon))  # type: ignore[attr-defined]
        people = task.honest
    others = round(held * (people - 1) * span)
    return ones(others + span, people * span, flip), ones(others, people * span, flip)


def product(*pairs: Pair) -> Pair:
    """Of independent laws."""
    first, second = pairs[0]
    for one, other in pairs[1:]:
        first = np.outer(first, one).ravel()
        second = np.outer(second, other).ravel()
    return first, second


def true_epsilon(pair: Pair, delta: float) -> float:
    """Least epsilon at which neither law exceeds e^epsilon times the other by over delta."""

    def exceeds(epsilon: float) -> float:
        return max(
            float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())
            for one, other in (pair, pair[::-1])
        )

    return last_certified(lambda epsilon: exceeds(epsilon) <= delta, 0.0, 20.0, relative=1e-6)


def worst(parts: list[tuple[Task, int]], delta: float) -> float:
    """Over some data sets, the same share of ones in each."""
    shares = (0.0, 0.25, 0.5, 1.0)
    return max(
        true_epsilon(
            product(*(pairs_of(task, held) for task, count in parts for _ in range(count))), delta
        )
        for held in shares
    )


def test_released_rounds_cost_at_least_the_truth_and_not_much_more(bits: Task) -> None:
    """Two of three rounds, composed by enumeration; and a fourth that nobody planned."""
    for rounds in (1, 2):
        truth = worst([(bits, rounds)], 1e-4)
        price = TaskCost(bits, rounds).price
        assert price.delta == 1e-4
        assert truth <= price.epsilon <= 1.15 * truth
    assert TaskCost(bits, 3).price.epsilon == bits.guarantee.epsilon == 2.0
    assert 2.0 < TaskCost(bits, 4).price.epsilon < 2.0 * 4 / 3


def test_different_tasks_cost_at_least_the_truth_and_not_much_more(bits: Task, coins: Task) -> None:
    """Flipped bits, twice, and a coin, each at its own distance: between truth and sum."""
    found = joint_cost([TaskCost(bits, 2), TaskCost(coins, 1)])
    assert found.spent.delta == pytest.approx(2e-4)
    truth = worst([(bits, 2), (coins, 1)], found.spent.delta)
    added = TaskCost(bits, 2).price.epsilon + TaskCost(coins, 1).price.epsilon
    assert truth <= found.spent.epsilon <= 1.1 * truth
    assert found.spent.epsilon < 0.9 * added
    assert (
        found.spent.epsilon
        <= found.planned.epsilon
        <= bits.guarantee.epsilon + coins.guarantee.epsilon
    )


def test_pure_tasks_add_up_exactly() -> None:
    """Discrete Laplace and randomized response at delta 0: the sum of losses is attained."""
    local = load_task("local sum")
    labels = plan(
        Histogram(Categories(["a", "b", "c"])), Target(0.7, 0, 1), 5, trusted="nobody"
    ).task
    found = joint_cost([TaskCost(local, 1), TaskCost(labels, 1)])
    rows = np.asarray(labels.protocol.randomizer.rows())  # type: ignore[attr-defined]
    rate = local.protocol.randomizers[0].rate  # type: ignore[attr-defined]
    truth = 5 * rate + float(np.abs(np.log(rows[0] / rows[1])).max())
    assert found.spent.delta == 0.0
    assert truth * (1 - 1e-12) <= found.spent.epsilon <= 1.0001 * truth
    assert found.colluding == found.spent  # nobody is trusted anyway


def test_one_value_that_moves_in_tasks_of_different_distances() -> None:
    """1 at 5 kcal and 1 at 10 kcal: 1.5 if one value moves by up to 5 in both.

    kcal and hours have nothing in common.
    """
    five = load_task("local sum")
    ten = plan(Sum(Integers(0, 20, "kcal")), Target(1, 0, 10), 40, trusted="nobody").task
    hours = plan(Sum(Integers(0, 20, "h")), Target(1, 0, 10), 40, trusted="nobody").task
    found = joint_cost([TaskCost(five, 1), TaskCost(ten, 1)])
    assert found.common is not None
    assert found.spent.epsilon == pytest.approx(2.0)
    assert found.common.spent.epsilon == pytest.approx(1.5)
    assert found.common.distances == (5.0, 5.0)
    assert joint_cost([TaskCost(five, 1), TaskCost(hours, 1)]).common is None
    told = " ".join(found.lines())
    assert "by up to 5 kcal in total in (1) and by up to 10 kcal in total in (2)" in told
    assert (
        "the same value that moves, by up to 5 kcal in all tasks of this unit: epsilon 1.5" in told
    )
    assert "(and as above in the others)" in " ".join(
        joint_cost([TaskCost(task, 1) for task in (five, ten, hours)]).lines()
    )
    assert "nothing is promised" in told


def test_fewer_rounds_cost_less_and_never_more_than_planned(bits: Task) -> None:
    prices = [TaskCost(bits, rounds) for rounds in range(4)]
    assert prices[0].price.epsilon == prices[0].alone.epsilon == 0.0
    for fewer, more in pairwise(prices):
        assert fewer.price.epsilon < more.price.epsilon <= bits.guarantee.epsilon
        assert (
            fewer.alone.epsilon
            < more.alone.epsilon
            <= bits.if_shuffler_colludes.epsilon * (1 + 1e-9)
        )
        assert more.left == bits.rounds - more.rounds


@pytest.mark.parametrize(
    "kind",
    [
        "unary sum",
        "sum in shares",
        "witch hat",
        "vectors of a line",
        "users' vectors",
        "users' mean",
        "curator's sum",
    ],
)
def test_every_kind_of_task_has_a_price(kind: str) -> None:
    """Extra rounds cost more; two tasks at most the sum; no fallback after a curator."""
    task = load_task(kind)
    twice = TaskCost(task, 2).price
    assert twice.epsilon > task.guarantee.epsilon
    assert twice.delta <= 2.0000001 * task.guarantee.delta
    other = load_task("local sum")
    found = joint_cost([TaskCost(task, 1), TaskCost(other, 1)])
    assert max(task.guarantee.epsilon, 1.0) <= found.spent.epsilon * 1.0001
    assert found.spent.epsilon <= (task.guarantee.epsilon + 1.0) * (1 + 1e-12)
    assert math.isinf(found.colluding.epsilon) == (task.protocol.trusted == "curator")
    assert (found.document()["together"]["if_shuffler_colludes"]["epsilon"] is None) == (
        task.protocol.trusted == "curator"
    )


@pytest.mark.parametrize("delta", [1e-30, 0.0])
def test_tiny_deltas(delta: float) -> None:
    """One person, and a delta that hardly is: sums of epsilons, or less, and never nothing."""
    task = plan(Sum(Integers(0, 20)), Target(1, delta, 5), 1, trusted="nobody", rounds=2).task
    other = plan(Sum(Integers(0, 20)), Target(2, delta, 5), 1, trusted="nobody").task
    found = joint_cost([TaskCost(task, 1), TaskCost(other, 1)])
    assert found.spent.epsilon == pytest.approx(2.5, rel=1e-3)
    assert found.planned.epsilon == pytest.approx(3.0, rel=1e-3)


def test_a_task_that_claims_too_much_has_no_price() -> None:
    """Ledgers hold tasks as they came; none is believed."""
    honest = load_task("local sum")
    claimed = honest.guarantee.model_copy(update={"epsilon": 0.1})
    liar = Task(
        **{**dict(honest), "guarantee": claimed, "if_shuffler_colludes": claimed, "digest": ""}
    )
    with pytest.raises(NotCertified, match="claims more than is true"):
        joint_cost([TaskCost(liar, 1)])


@given(st.floats(0.01, 5.0), st.integers(1, 6), st.sampled_from([1e-3, 1e-6, 1e-12]))
def test_sampled_curves_lie_above_the_curve(rate: float, rounds: int, delta: float) -> None:
    """What dominates a round is nowhere below it, at the points and between them."""
    profile = PureProfile(rate)
    at = curve_epsilons(profile, 1.0, rate, delta / rounds)
    pair = DominatingPairProfile(
        dominating_pair(at, [profile.delta(epsilon, 1.0) for epsilon in at])
    )
    assert pair.pure(1.0) >= rate
    assert (pair.delta(0.0, 0.0), pair.delta(0.0, 1.5), pair.pure(1.5)) == (0.0, 1.0, math.inf)
    for epsilon in np.linspace(0.0, 1.2 * rate, 23).tolist():
        assert (
            profile.delta(epsilon, 1.0)
            <= pair.delta(epsilon, 1.0)
            <= profile.delta(epsilon, 1.0) + 0.01
        )


def test_nothing_is_certified_beyond_what_is_looked_for(bits: Task) -> None:
    """Joint epsilon falls in delta; infinite where the guaranteed deltas exceed it."""
    parts = [TaskCost(bits, 1), TaskCost(bits, 2)]
    distances = [3.0, 3.0]
    assert composed_epsilon(parts, distances, 1e-2) < composed_epsilon(parts, distances, 2e-4)
    assert math.isinf(composed_epsilon(parts, distances, 0.0))

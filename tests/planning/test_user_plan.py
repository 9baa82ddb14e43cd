"""Plans about users' items: every promise against the exact law of what leaves, and what is refused or not offered."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.oracles.multiset_laws import divergence, multiset_law

from metricshuffle.accounting.items.gaussian import MetricGaussian
from metricshuffle.accounting.sums.padded import clamping_penalty
from metricshuffle.errors import BatchTooSmall, InputError, NotCertified, PlanError
from metricshuffle.noise.grid_laplace import GridLaplace
from metricshuffle.planning.plan import Plan
from metricshuffle.planning.offers.user_items import UserCandidate, item_randomizers
from metricshuffle.planning.user_plan import UserPlan, plan_users
from metricshuffle.privacy.target import Target
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.queries.user_items import UserHistogram, UserLinearQuery
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomizers.clustered_response import ClusteredResponse
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Clustered, Grid, Integers, Matrix, Scaled, Space, Tree, users_of
from metricshuffle.spaces.metrics import Absolute

CLUSTERS = Clustered(2, 2, 0.3)
TREE = Tree([-1, 0, 0, 1, 1, 2, 3, 3], [0, 0.1, 0.3, 0.7, 0.123, 0.33, 0.77, 0.01])


def chosen(plan: UserPlan, model: str) -> UserPlan:
    """The same plan with the candidate of that model chosen."""
    index = next(i for i, one in enumerate(plan.candidates) if one.model == model)
    return plan.model_copy(update={"chosen": index})


def item_plan(space: Any, items: int | None, users: int, target: Target, **rest: Any) -> UserPlan:
    return plan_users(UserHistogram(users_of(space, items)), target, users, methods=["item-wise"], **rest)


@pytest.fixture(scope="module")
def clusters_plan() -> UserPlan:
    return item_plan(CLUSTERS, 2, 3, Target(1.0, 0.1, 1.0))


# --- promises about items, against the exact law of the multiset of reports ---


def worst_share(plan: UserPlan, candidate: UserCandidate, users: int) -> float:
    """The largest exact divergence over what is promised, over all pairs of users and all the others may hold; at most 1 if it is true."""
    rows, people = np.asarray(candidate.randomizer.rows()), plan.query.people  # type: ignore[union-attr]
    items, promise = int(people.items or 0), candidate.guarantee
    sets = list(itertools.combinations_with_replacement(range(len(rows)), items))
    rest = 0 if candidate.model == "local" else items * (users - 1)
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(len(rows)), rest):
        laws = {held: multiset_law([rows[item] for item in (*held, *others)]) for held in sets}
        for a, b in itertools.combinations(sets, 2):
            apart = people.distance(list(a), list(b))
            if apart <= promise.distance * (1.0 + 1e-12):
                share = apart / promise.distance if promise.shape == "linear" else 1.0
                worst = max(worst, divergence(laws[a], laws[b], promise.epsilon * share) / promise.delta)
    return worst


@pytest.mark.parametrize(
    ("space", "items", "users", "target"),
    [
        (CLUSTERS, 2, 2, Target(1.0, 0.1, 1.0)),
        (Clustered(2, 2, 0.9), 1, 4, Target(0.5, 0.1, 0.9, "flat")),
        (Categories(["a", "b", "c"]), 2, 3, Target(1.0, 0.05, 1.0)),
        (Integers(0, 2), 3, 2, Target(0.5, 0.2, 1.0)),
        (Space(Integers(0, 2), Scaled(Absolute(), 0.1)), 2, 3, Target(0.8, 0.1, 0.1)),
    ],
    ids=str,
)
def test_item_wise_promises_are_true_of_the_shuffled_reports(space: Any, items: int, users: int, target: Target) -> None:
    plan = item_plan(space, items, users, target)
    assert {one.model for one in plan.candidates} == {"local", "shuffled"}
    for one in plan.candidates:
        assert (one.guarantee.epsilon, one.guarantee.delta, one.guarantee.distance) == (target.epsilon, target.delta, target.distance)
        assert worst_share(plan, one, users) <= 1.0


def test_the_fallback_is_true_of_one_users_sorted_reports(clusters_plan: UserPlan) -> None:
    one = chosen(clusters_plan, "shuffled").choice
    rows, fallback = np.asarray(one.randomizer.rows()), one.fallback  # type: ignore[union-attr]
    assert fallback.epsilon > one.guarantee.epsilon
    assert fallback.trust.trusted == "nobody"
    for a, b in itertools.combinations(itertools.combinations_with_replacement(range(4), 2), 2):
        laws = [multiset_law([rows[item] for item in held]) for held in (a, b)]
        assert divergence(laws[0], laws[1], fallback.epsilon) <= fallback.delta


def test_promises_about_sampled_items_are_true_for_users_of_any_size() -> None:
    plan = item_plan(CLUSTERS, None, 2, Target(1.0, 0.1, 0.3, "flat"), samples=2)
    sets = [held for size in (1, 2, 3) for held in itertools.combinations_with_replacement(range(4), size)]
    people = plan.query.people
    near = [pair for pair in itertools.combinations(sets, 2) if people.distance(list(pair[0]), list(pair[1])) <= 0.3 + 1e-12]
    assert len(near) > 50
    for one in plan.candidates:
        rows = np.asarray(one.randomizer.rows())  # type: ignore[union-attr]
        means = {held: np.bincount(held, minlength=4) @ rows / len(held) for held in sets}  # samples are independent: reports as well
        assert one.guarantee.items == "any"
        assert one.guarantee.shape == "flat"
        for others in [None] if one.model == "local" else [(0,), (0, 2), (2, 3)]:
            rest = [] if others is None else [means[others]] * 2
            laws = {held: multiset_law([means[held]] * 2 + rest) for held in sets}
            assert max(divergence(laws[a], laws[b], 1.0) for a, b in near) <= 0.1


def test_reports_leave_sorted_so_that_no_item_has_a_place(clusters_plan: UserPlan) -> None:
    plan = chosen(clusters_plan, "local")
    records = plan.randomize([[0, 3], [3, 0]] * 200, Randomness.seeded(1)).records
    assert records.shape == (400, 2)
    assert np.all(records[:, 0] <= records[:, 1])


def test_items_of_dishonest_users_are_not_counted_on() -> None:
    some = item_plan(Integers(0, 2), 5, 1000, Target(1.0, 1e-6, 1.0), honest="10%")
    exact = item_plan(Integers(0, 2), 5, 100, Target(1.0, 1e-6, 1.0))
    one, other = chosen(some, "shuffled"), chosen(exact, "shuffled")
    assert one.choice.item_rate == pytest.approx(other.choice.item_rate, rel=1e-2)
    assert one.choice.guarantee.trust.honest_reports == 100 == one.minimum
    with pytest.raises(BatchTooSmall, match="99 users, but the guarantee counts on at least 100"):
        one.shuffle(one.randomize([[0] * 5] * 99, Randomness.seeded(1)))
    assert one.shuffle(one.randomize([[0] * 5] * 1500, Randomness.seeded(1))).reports == 1500  # more hide better


# --- promises about answers, in exact arithmetic ---


@pytest.mark.parametrize(
    ("space", "target"),
    [
        (Clustered(3, 3, 0.05), Target(20.0, 0.0, 1.0)), (Clustered(3, 3, 0.05), Target(1.0, 0.0, 0.05)),
        (Integers(0, 9), Target(1.0, 0.0, 3.0)), (Space(Integers(0, 9), Scaled(Absolute(), 0.1)), Target(1.0, 0.0, 0.3)),
        (TREE, Target(0.7, 0.0, 1.0)), (Categories(["a", "b"]), Target(0.1, 0.0, 1.0)),
    ],
    ids=str,
)  # fmt: skip
def test_tree_laplace_keeps_its_rate_in_exact_arithmetic(space: Any, target: Target) -> None:
    query = UserHistogram(users_of(space))
    plan = plan_users(query, target, 100, trusted="curator")
    numbers, below = query.coordinates.numbers, Fraction(2) ** query.coordinates.power
    for one in plan.candidates:
        assert one.noise is not None
        assert one.guarantee.delta == 0.0
        scale = GridLaplace.at_least(one.noise.scale, Fraction(one.noise.cell)).scale
        for a, b in itertools.combinations(range(query.people.size), 2):
            loss = sum(abs(int(x) - int(y)) for x, y in zip(numbers[a], numbers[b], strict=True)) / below / scale
            apart = Fraction(float(query.people.distances[a, b])) * (1 + Fraction(8, 2**53))  # sums along the tree are rounded
            assert loss <= Fraction(target.epsilon) / Fraction(target.distance) * apart
    central = next(one for one in plan.candidates if one.model == "central")
    assert central.fallback.epsilon == math.inf
    assert "NOT hidden" in str(central.fallback)


VECTORS = np.random.default_rng(0).normal(size=(9, 3))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (1.0, 1e-9), (30.0, 1e-9), (60.0, 1e-9), (60.0, 0.0), (200.0, 1e-3)])
def test_no_promise_exceeds_the_target(epsilon: float, delta: float) -> None:
    """Noise that is drawn nearly exactly costs (1 + e^epsilon) times what it is off: at epsilon 60 that was 5e-7 for a delta of 1e-9."""
    plan = plan_users(UserLinearQuery(users_of(Clustered(3, 3, 0.2)), VECTORS), Target(epsilon, delta, 1.0), 100, trusted="curator")
    constants = {"laplace": "l1", "sphere": "l2", "cube": "linf", "gaussian": "l2"}
    query = plan.query
    assert isinstance(query, UserLinearQuery)
    for one in plan.candidates:
        assert one.noise is not None
        assert one.guarantee.epsilon <= epsilon
        assert one.guarantee.delta <= delta
        lost = clamping_penalty(epsilon, one.noise.inexactness)
        constant = query.constant_in(constants[one.name])  # type: ignore[arg-type]
        if one.name == "gaussian":
            assert MetricGaussian(one.noise.scale / constant).delta(epsilon, 1.0) + lost <= one.guarantee.delta * (1.0 + 1e-12)
        else:
            assert constant / one.noise.scale <= epsilon
            assert lost <= one.guarantee.delta
    offered = {one.name for one in plan.candidates}
    assert offered == ({"laplace"} if delta == 0.0 or epsilon >= 60.0 else set(constants))
    assert {name for name, _ in plan.not_offered} <= set(constants) - offered


def test_the_noise_on_the_sum_is_that_on_one_answer() -> None:
    """One user's answer is all that moves in the sum, whatever the sizes of the others; the mean divides both by the number of users."""
    plan = plan_users(UserHistogram(users_of(Integers(0, 4))), Target(1.0, 0.0, 1.0), 50, trusted="curator")
    assert {one.model: one.noise for one in plan.candidates}["local"] == {one.model: one.noise for one in plan.candidates}["central"]
    held = [[0, 4, 4], [1], [2, 3]]
    moved = [[0, 4, 4], [1], [2, 3, 3, 3, 3, 3]]
    answers = [plan.query.answers(people).total() for people in (held, moved)]
    assert sum(abs(a - b) for a, b in zip(*answers, strict=True)) <= Fraction(plan.query.people.distance(held[2], moved[2]))


def test_a_gaussian_plan_promises_up_to_its_distance_only() -> None:
    query = UserLinearQuery.average(users_of(Space(Integers(0, 100), Scaled(Absolute(), 0.01))))
    plan = plan_users(query, Target(1.0, 1e-6, 0.1), 100, trusted="curator", methods=["gaussian"])
    one = plan.choice
    assert one.noise is not None
    profile = MetricGaussian(one.noise.scale / query.constant_in("l1"))
    for apart in (0.001, 0.01, 0.05, 0.1):
        assert profile.delta(apart / 0.1, apart) <= 1e-6
    assert profile.delta(10.0, 1.0) > 1e-6  # beyond, the rate alone is not kept, and the guarantee does not say so
    assert one.guarantee.distance == 0.1
    assert "delta" in str(plan).splitlines()[-2]


# --- what is offered ---


def test_a_tree_whose_sums_differ_in_the_last_bit_is_planned() -> None:
    people = users_of(TREE, 10)
    assert not np.array_equal(people.distances, people.distances.T)
    plan = plan_users(UserHistogram(people), Target(1.0, 1e-6, 1.0), 1000)
    assert {one.name for one in plan.candidates} == {"tree-laplace", "item-wise"}


def test_what_cannot_be_certified_is_not_offered_and_said_why() -> None:
    plan = plan_users(UserHistogram(users_of(Clustered(2, 2, 0.3), 1000)), Target(1.0, 1e-9, 1.0), 10**13, trusted="curator")
    assert "2^52" in dict(plan.not_offered)["item-wise"]
    plan = plan_users(UserHistogram(users_of(Clustered(2, 2, 0.3), 1)), Target(1000.0, 1e-9, 1.0), 10)
    assert "item-wise" in dict(plan.not_offered)
    assert plan.choice.name == "tree-laplace"
    plan = plan_users(UserHistogram(users_of(CLUSTERS)), Target(1.0, 1e-9, 0.5), 10, samples=3)
    assert "shape 'flat'" in dict(plan.not_offered)["item-wise"]
    plan = plan_users(UserHistogram(users_of(CLUSTERS)), Target(1.0, 0.0, 0.5), 10)
    assert "delta above 0" in dict(plan.not_offered)["item-wise"]


def test_points_that_reports_cannot_tell_apart_make_a_sentence() -> None:
    for table in ([[0, 0, 1], [0, 0, 1], [1, 1, 0]], [[0, 1e-13, 1], [1e-13, 0, 1], [1, 1, 0]]):
        with pytest.raises(InputError, match=r"no way keeps this target here.*condition number"):
            plan_users(UserHistogram(users_of(Matrix(table), 5)), Target(1.0, 1e-6, 0.5), 100, methods=["item-wise"])


def test_a_singular_channel_is_refused() -> None:
    with pytest.raises(NotCertified, match="condition number"):
        Inversion.of(Channel([[0.5, 0.5], [0.5, 0.5]]))


def test_ill_conditioned_reports_are_warned_about() -> None:
    plan = item_plan(Grid(3, 3, 1.0), 2, 20, Target(0.003, 1e-3, 1.0))
    assert plan.choice.condition is not None
    assert plan.choice.condition > 1e3
    assert "Warning: item-wise (shuffled) is ill-conditioned: one report counts for up to" in str(plan)
    assert "Warning: item-wise" in str(plan.run(np.zeros((20, 2), dtype=np.int64), Randomness.seeded(1)))
    fine = item_plan(Integers(0, 2), 2, 5, Target(1.0, 0.1, 1.0))
    assert fine.choice.condition is not None
    assert fine.choice.condition < 1e3
    assert "Warning" not in str(fine)


def test_clustered_reports_invert_by_the_closed_form() -> None:
    """The inverse of Imola24's clustered response: a' on the point, b' on its cluster, c' on all."""
    for s, t, r, rate in ((3, 4, 0.3, 2.5), (8, 8, 0.05, 0.4), (2, 5, 0.9, 6.0)):
        randomizer = item_randomizers(users_of(Clustered(s, t, r)))(rate)
        assert isinstance(randomizer, ClusteredResponse)
        e, er = math.exp(rate), math.exp((1 - r) * rate)
        z = e + (t - 1) * er + (s - 1) * t
        a, b = z / (e - er), -(er - 1) * z / ((e - er) * (e + (t - 1) * er - t))
        c = -1 / (e + (t - 1) * er - t)
        assert a + t * b + s * t * c == pytest.approx(1.0, abs=1e-9)
        blocks = np.kron(np.eye(s), np.ones((t, t)))
        inverse = a * np.eye(s * t) + b * blocks + c
        np.testing.assert_allclose(randomizer.debiasing(), inverse, rtol=1e-6, atol=1e-9)
        assert np.abs(np.asarray(randomizer.rows()) @ randomizer.debiasing() - np.eye(s * t)).max() < 5e-12


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q: plan_users(q, q.people, 10), "a Target, got UserHistogram and Users"),
        (lambda q: plan_users(q.people, Target(1, 0, 1), 10), "needs a query"),
        (lambda q: plan_users(q, Target(1, 0, 1), 0), "users must be a whole number"),
        (lambda q: plan_users(q, Target(1, 0, 2), 10), "beyond the largest earth mover's distance, 1"),
        (lambda q: plan_users(q, Target(1, 0, 1), 10, methods="tree-laplace"), "methods must be a list"),
        (lambda q: plan_users(q, Target(1, 0, 1), 10, methods=["laplace"]), "no method 'laplace'.*tree-laplace, share-laplace, item-wise"),
        (lambda q: plan_users(q, Target(1, 0, 1), 10, methods=[]), "methods names no method"),
        (lambda q: plan_users(q, Target(1, 0, 1), 10, trusted="aggregator"), "trusted must be"),  # type: ignore[arg-type]
        (lambda q: plan_users(q, Target(1, 0, 1), 10, samples=5), "samples must be .* for users with any number of items"),
        (lambda q: plan_users(UserHistogram(users_of(CLUSTERS)), Target(1, 0, 1), 10, samples="x"), "samples must be"),  # type: ignore[arg-type]
        (lambda q: plan_users(q, Target(1, 1.0, 1), 10), "delta must lie in"),
        (lambda q: plan_users(q, Target(1, 0, 1), 10, honest=11), "cannot exceed users"),
        (lambda q: plan_users(UserLinearQuery(q.people, np.ones(4)), Target(1, 0, 1), 10), "same at every point"),
    ],
)
def test_wrong_wishes_are_refused_in_words(call: Callable[[Any], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call(UserHistogram(users_of(CLUSTERS, 2)))


def test_a_distance_below_the_nearest_points_is_refused_or_said() -> None:
    people = users_of(Integers(0, 100, unit="km"))
    small = Target(epsilon=1.0, delta=0.0, distance=0.1)
    plan = plan_users(UserHistogram(people), small, 50, trusted="nobody")
    assert "different points are at least 1 km apart" in str(plan)
    assert "10 % of a user's items" in plan.run([[1, 2], [3]] * 25).warning
    assert "different points" not in str(plan_users(UserHistogram(people), Target(1.0, 0.0, 1.0), 50, trusted="nobody"))
    with pytest.raises(InputError, match=r"less than the smallest move, 0\.2 km: one of 5 items"):
        plan_users(UserHistogram(users_of(Integers(0, 100, unit="km"), items=5)), small, 50)


def test_cells_of_a_grid_count_at_their_middles() -> None:
    query = UserLinearQuery.average(users_of(Grid(3, 2, 10.0, "m")))
    assert query.names == ("east", "north")
    assert query.table[0].tolist() == [5.0, 5.0]
    assert query.table[-1].tolist() == [25.0, 15.0]


def test_sentences_count_users_and_name_what_was_seen() -> None:
    target = Target(epsilon=20.0, delta=1e-6, distance=1.0)
    plan = plan_users(UserHistogram(users_of(CLUSTERS, items=3)), target, 400, 300)
    shuffled = next(one for one in plan.candidates if one.model == "shuffled")
    assert "at least 300 users are honest" in str(shuffled.guarantee)
    central = next(one for one in plan.candidates if one.model == "central")
    assert "the curator, who sees the raw items, is honest" in str(central.guarantee)
    assert str(central.fallback).endswith("of earth mover's distance (bound: raw items seen).")
    many = plan_users(UserLinearQuery(users_of(CLUSTERS), np.arange(8.0).reshape(4, 2)), target, 400)
    assert {one.guarantee.bound for one in many.candidates} >= {"pure", "pure, drawn nearly exactly"}


def test_noise_beyond_all_numbers_is_a_sentence() -> None:
    with pytest.raises(InputError, match="beyond 1e-290 to 1e290"):
        plan_users(UserHistogram(users_of(CLUSTERS)), Target(1e-300, 0.0, 1.0), 10, trusted="nobody")


def test_a_table_of_distances_takes_noise_on_the_shares() -> None:
    people = users_of(Matrix([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]]))
    query = UserHistogram(people)
    assert query.constant == pytest.approx(2.0, rel=1e-9)
    plan = plan_users(query, Target(4.0, 0.0, 2.0), 4000, trusted="curator")
    assert {(one.name, one.model) for one in plan.candidates} == {("share-laplace", "local"), ("share-laplace", "central")}
    assert plan.choice.guarantee.epsilon == 4.0
    for model in ("local", "central"):
        release = chosen(plan, model).run([[0, 0, 1]] * 3000 + [[2]] * 1000, Randomness.seeded(5))
        assert release.value == pytest.approx((0.5, 0.25, 0.25), abs=0.1 if model == "local" else 0.003)
        errors = (np.array(release.measured) - (0.5, 0.25, 0.25)) / np.array(release.standard_errors)
        assert np.abs(errors).max() < 5.0
    # One user's only item moves by 1, between the nearest points: the exact loss of the noisy shares is rate * 1 at most.
    laplace = GridLaplace.at_least(plan.choice.noise.scale, Fraction(plan.choice.noise.cell)) if plan.choice.noise else None
    assert laplace is not None
    assert 2.0 / float(laplace.scale) <= 2.0 * (1.0 + 1e-12)


def test_points_at_distance_0_are_not_told_apart() -> None:
    people = users_of(Matrix([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    with pytest.raises(InputError, match="distance 0"):
        plan_users(UserHistogram(people), Target(1.0, 0.0, 1.0), 100)


def test_a_plan_read_by_the_wrong_reader_names_the_right_one() -> None:
    plan = plan_users(UserHistogram(users_of(CLUSTERS)), Target(1.0, 0.0, 1.0), 10, trusted="nobody")
    with pytest.raises(PlanError, match=r"read it in Python with UserPlan\.load"):
        Plan.from_json(plan.to_json())


def test_a_diameter_that_was_rounded_down_does_not_matter() -> None:
    links = 400
    people = users_of(Tree([-1, *range(links)], [0.0] + [0.1] * links), items=2)
    exact = links * Fraction(0.1)
    made = next(one for one in plan_users(UserHistogram(people), Target(4.0, 1e-3, 40.0), 50).candidates if one.model == "shuffled")
    assert made.item_rate is not None
    assert made.randomizer is not None
    assert Fraction(made.randomizer.local_epsilon(0, links)) <= Fraction(made.item_rate) * exact

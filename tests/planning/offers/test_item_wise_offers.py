"""Reports of every item: guarantees against exact laws, and what is rejected or not offered."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.catalogue.small_plans import chosen
from tests.oracles.multiset_laws import divergence, multiset_law

from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile
from metricshuffle.accounting.user_items.subsampled_items import draw_rate
from metricshuffle.errors import BatchTooSmall, InputError, NotCertified, PlanError
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.planning import Candidate, Plan, plan
from metricshuffle.planning.candidates.item_calibration import (
    default_draws,
    item_calibration,
    item_randomizers,
)
from metricshuffle.planning.error_simulation import other_errors, simulated_error
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.item_accounts import ItemAccounts
from metricshuffle.queries import UserHistogram
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomizers.clustered_response import ClusteredResponse
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import (
    Categories,
    Clustered,
    Discrete,
    Grid,
    Integers,
    Matrix,
    Scaled,
    Space,
    Tree,
    nested_squares,
    users_of,
)
from metricshuffle.spaces.metrics import Absolute
from metricshuffle.tasks import Task

CLUSTERS = Clustered(2, 2, 0.3)
TREE = Tree([-1, 0, 0, 1, 1, 2, 3, 3], [0, 0.1, 0.3, 0.7, 0.123, 0.33, 0.77, 0.01])


def trusting(made: Plan, trusted: Who) -> Plan:
    """The same plan with the candidate of that trust chosen."""
    return chosen(
        made, next(index for index, offer in enumerate(made.candidates) if offer.trusted == trusted)
    )


def item_plan(space: Any, items: int | None, users: int, target: Target, **choices: Any) -> Plan:
    return plan(
        UserHistogram(users_of(space, items)), target, users, protocols=["item-wise"], **choices
    )


def rows_of(offer: Candidate) -> Any:
    assert isinstance(offer.mechanism, Frequencies)
    return np.asarray(offer.mechanism.randomizer.rows())


def people_of(made: Plan) -> Any:
    assert isinstance(made.query, UserHistogram)
    return made.query.people


@pytest.fixture(scope="module")
def clusters_plan() -> Plan:
    return item_plan(CLUSTERS, 2, 3, Target(1.0, 0.1, 1.0))


# --- promises about items, against the exact law of the multiset of reports ---


def worst_share(made: Plan, offer: Candidate, users: int) -> float:
    """Largest exact divergence over the guarantee, over all users and others; at most 1."""
    rows = rows_of(offer)
    people = people_of(made)
    promise = offer.guarantee
    items = int(people.items)
    sets = list(itertools.combinations_with_replacement(range(len(rows)), items))
    beside = 0 if offer.trusted == "nobody" else items * (users - 1)
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(len(rows)), beside):
        laws = {held: multiset_law([rows[item] for item in (*held, *others)]) for held in sets}
        for a, b in itertools.combinations(sets, 2):
            apart = people.distance(list(a), list(b))
            if apart <= promise.distance * (1.0 + 1e-12):
                share = apart / promise.distance if promise.shape == "linear" else 1.0
                worst = max(
                    worst, divergence(laws[a], laws[b], promise.epsilon * share) / promise.delta
                )
    return worst


@pytest.mark.parametrize(
    ("space", "items", "users", "target"),
    [
        (CLUSTERS, 2, 2, Target(1.0, 0.1, 1.0)),
        (Clustered(2, 2, 0.9), 1, 4, Target(0.5, 0.1, 0.9, "flat")),
        (Categories(["a", "b", "c"]), 2, 3, Target(1.0, 0.05, 1.0)),
        (Integers(0, 2), 3, 2, Target(0.5, 0.2, 1.0)),
        (Integers(0, 3), 1, 5, Target(1.0, 0.02, 3.0)),
        (
            Matrix([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]]),
            1,
            4,
            Target(1.0, 0.05, 2.0, "flat"),
        ),
        (
            Space(Categories(["a", "b", "c", "d"]), Scaled(CLUSTERS, 0.7)),
            2,
            2,
            Target(1.0, 0.1, 0.35, "flat"),
        ),
        (Space(Integers(0, 2), Scaled(Absolute(), 0.1)), 2, 3, Target(0.8, 0.1, 0.1)),
    ],
    ids=str,
)
def test_promises_are_true_of_the_shuffled_reports(
    space: Any, items: int, users: int, target: Target
) -> None:
    """Guarantees of own reports and of all reports, by enumeration of all values."""
    made = item_plan(space, items, users, target)
    assert {offer.trusted for offer in made.candidates} == {"nobody", "shuffler"}
    for offer in made.candidates:
        promise = offer.guarantee
        assert (promise.epsilon, promise.delta, promise.distance) == (
            target.epsilon,
            target.delta,
            target.distance,
        )
        assert worst_share(made, offer, users) <= 1.0


def test_the_fallback_is_true_of_one_users_sorted_reports(clusters_plan: Plan) -> None:
    """What is left if the shuffler colludes, for every pair of users."""
    offer = trusting(clusters_plan, "shuffler").choice
    rows = rows_of(offer)
    fallback = offer.fallback
    assert fallback.epsilon > offer.guarantee.epsilon
    assert fallback.trust.trusted == "nobody"
    for a, b in itertools.combinations(itertools.combinations_with_replacement(range(4), 2), 2):
        laws = [multiset_law([rows[item] for item in held]) for held in (a, b)]
        assert divergence(laws[0], laws[1], fallback.epsilon) <= fallback.delta


@pytest.mark.thorough
def test_promises_about_sampled_items_are_true_for_users_of_any_size() -> None:
    """Users of one, two and three items that draw two each: all near pairs."""
    made = item_plan(CLUSTERS, None, 2, Target(1.0, 0.1, 0.3, "flat"), draw=2)
    sets = [
        held
        for size in (1, 2, 3)
        for held in itertools.combinations_with_replacement(range(4), size)
    ]
    people = people_of(made)
    near = [
        pair
        for pair in itertools.combinations(sets, 2)
        if people.distance(list(pair[0]), list(pair[1])) <= 0.3 + 1e-12
    ]
    assert len(near) > 50
    for offer in made.candidates:
        rows = rows_of(offer)
        means = {
            held: np.bincount(held, minlength=4) @ rows / len(held) for held in sets
        }  # samples are independent: reports as well
        assert offer.guarantee.items == "any"
        assert offer.guarantee.shape == "flat"
        for others in [None] if offer.trusted == "nobody" else [(0,), (0, 2), (2, 3)]:
            beside = [] if others is None else [means[others]] * 2
            laws = {held: multiset_law([means[held]] * 2 + beside) for held in sets}
            assert max(divergence(laws[a], laws[b], 1.0) for a, b in near) <= 0.1


def test_reports_leave_sorted_so_that_no_item_has_a_place(clusters_plan: Plan) -> None:
    """The order of items reveals more than their multiset, which is accounted for."""
    made = trusting(clusters_plan, "nobody")
    messages = made.randomize([[0, 3], [3, 0]] * 200, Randomness.seeded(1)).messages
    assert messages.shape == (400, 2)
    assert np.all(messages[:, 0] <= messages[:, 1])


def test_items_of_dishonest_users_are_not_counted_on() -> None:
    """A tenth of a thousand is as good as a hundred; fewer reports are rejected."""
    some = item_plan(Integers(0, 2), 5, 1000, Target(1.0, 1e-6, 1.0), honest="10%")
    exact = item_plan(Integers(0, 2), 5, 100, Target(1.0, 1e-6, 1.0))
    tenth = trusting(some, "shuffler")
    hundred = trusting(exact, "shuffler")
    assert tenth.choice.item_rate == pytest.approx(hundred.choice.item_rate, rel=1e-2)
    assert tenth.choice.guarantee.trust.honest_reports == 100 == tenth.minimum
    with pytest.raises(BatchTooSmall, match="99 reports, but the guarantee counts on at least 100"):
        tenth.shuffle(tenth.randomize([[0] * 5] * 99, Randomness.seeded(1)))
    assert (
        tenth.shuffle(tenth.randomize([[0] * 5] * 1500, Randomness.seeded(1))).people == 1500
    )  # more hide better


# --- what is offered ---


def test_a_tree_whose_sums_differ_in_the_last_bit_is_planned() -> None:
    """Distances along a tree may differ by rounding in the two directions."""
    people = users_of(TREE, 10)
    assert not np.array_equal(people.distances, people.distances.T)
    made = plan(UserHistogram(people), Target(1.0, 1e-6, 1.0), 1000)
    assert {offer.protocol for offer in made.candidates} == {
        "tree-laplace",
        "item-wise",
        "noisy-vectors",
        "shuffler-noise",
    }


def test_what_cannot_be_certified_is_not_offered_and_said_why() -> None:
    """Too many items, too weak a promise, and shuffling without a delta."""

    def why(made: Plan) -> str:
        return {row.protocol: row.reason for row in made.not_offered}["item-wise"]

    assert "2^52" in why(
        plan(
            UserHistogram(users_of(CLUSTERS, 1000)),
            Target(1.0, 1e-9, 1.0),
            10**13,
            trusted="curator",
        )
    )
    weak = plan(UserHistogram(users_of(CLUSTERS, 1)), Target(1000.0, 1e-9, 1.0), 10)
    assert why(weak)
    assert weak.choice.protocol == "shuffler-noise"
    assert "delta above 0" in why(
        plan(UserHistogram(users_of(CLUSTERS)), Target(1.0, 0.0, 0.5), 10)
    )
    assert "the same for everybody" in why(
        plan(UserHistogram(users_of(CLUSTERS)), Target(1.0, 1e-6, 0.5), 10)
    )
    with pytest.raises(InputError, match="more than 1,024"):
        item_plan(Integers(0, 1024), 1, 10, Target(1.0, 1e-6, 1024.0))


def test_drawn_items_keep_linear_targets_with_and_without_a_delta() -> None:
    """Calibrated up to the slope rate e^t without a delta, and beyond it with one."""
    people = users_of(Integers(0, 8))
    pure = item_plan(Integers(0, 8), None, 400, Target(1.0, 0.0, 2.0), draw=4)
    (offer,) = pure.candidates
    assert offer.trusted == "nobody"
    assert offer.guarantee.shape == "linear"
    rate = offer.item_rate
    assert rate is not None
    slope = draw_rate(4.0 * rate, 4, people.diameter)
    assert 0.499 < slope <= 0.5
    both = item_plan(Integers(0, 8), None, 400, Target(1.0, 1e-6, 2.0), draw=4)
    rates = {offer.trusted: offer.item_rate or 0.0 for offer in both.candidates}
    assert rates["shuffler"] > 1.5 * rates["nobody"] >= 1.5 * rate * (1.0 - 1e-6)
    for made in (pure, both):
        made.task.verify()


def test_the_planner_chooses_how_many_items_are_drawn() -> None:
    """With a delta, so many that drawing costs at most 5 %; without, where reports say most."""
    assert default_draws(Target(1.0, 1e-6, 2.3), 23.0) == 256
    assert default_draws(Target(1.0, 1e-6, 2.3, "flat"), 23.0) == 32
    assert default_draws(Target(1.0, 0.0, 2.3), 23.0) == 4
    assert default_draws(Target(900.0, 1e-6, 1.0), 100.0) == 1024
    assert default_draws(Target(0.01, 1e-6, 1.0), 1.0) == 1
    made = item_plan(CLUSTERS, None, 50, Target(1.0, 0.0, 0.5), draw="auto")
    assert isinstance(made.protocol, Frequencies)
    assert made.protocol.drawn is True
    assert made.samples == made.protocol.items == default_draws(Target(1.0, 0.0, 0.5), 1.0)


def test_one_public_number_may_be_drawn_from_without_replacement() -> None:
    """The rate keeps the slope of draws without replacement, and no item is drawn twice."""
    target = Target(1.0, 0.0, 0.5)
    made = item_plan(CLUSTERS, 4, 50, target, draw=3, without_replacement=True)
    protocol = made.protocol
    assert isinstance(protocol, Frequencies)
    assert protocol.drawn == "without replacement"
    rate = made.choice.item_rate
    assert rate is not None
    assert 1.99 < draw_rate(3.0 * rate, 3, 1.0, items=4) <= 2.0
    made.task.verify()
    assert Task.from_json(made.task.to_json()).protocol == protocol
    quiet = replace_randomizer(protocol)
    inputs = made.query.inputs([[0, 1, 2, 3]] * 4000, 1.0)
    drawn = quiet.messages(inputs, Randomness.seeded("draws"))
    assert drawn.shape == (4000, 3)
    assert (np.diff(drawn, axis=1) > 0).all()
    left_out = 6 - drawn.sum(axis=1)
    shares = np.bincount(left_out.astype(int), minlength=4) / 4000
    assert shares == pytest.approx(np.full(4, 0.25), abs=4.5 * math.sqrt(0.25 * 0.75 / 4000))
    unequal = UserHistogram(users_of(CLUSTERS))
    with pytest.raises(PlanError, match="without replacement only from one public number"):
        protocol.check(unequal)
    everyone = item_plan(CLUSTERS, 4, 50, target, draw=3)
    assert isinstance(everyone.protocol, Frequencies)
    assert everyone.protocol.drawn is True


def test_points_that_reports_cannot_tell_apart_make_a_sentence() -> None:
    """At distance 0, or nearly so."""
    for table in ([[0, 0, 1], [0, 0, 1], [1, 1, 0]], [[0, 1e-13, 1], [1e-13, 0, 1], [1, 1, 0]]):
        with pytest.raises(
            InputError, match=r"no protocol keeps this target here.*(condition number|merge points)"
        ):
            item_plan(Matrix(table), 5, 100, Target(1.0, 1e-6, 0.5))


@pytest.mark.slow
def test_a_metric_that_was_scaled_is_the_same_task() -> None:
    """Another unit scales the item rate and the error, nothing else."""
    for metric in (Clustered(4, 4, 0.1), Discrete()):
        labels = Categories([str(code) for code in range(16)])
        plain, scaled = (
            item_plan(Space(labels, one), 10, 1000, Target(5.0, 1e-6, far))
            for one, far in ((metric, 1.0), (Scaled(metric, 2.0), 2.0))
        )
        for one, two in zip(plain.candidates, scaled.candidates, strict=True):
            assert one.item_rate is not None
            assert two.item_rate is not None
            assert two.item_rate == pytest.approx(one.item_rate / 2.0, rel=2e-3)
            assert two.expected_error == pytest.approx(2.0 * one.expected_error, rel=0.02)
            assert two.guarantee.bound == one.guarantee.bound
        scaled.task.verify()


def test_reports_are_as_sharp_as_their_rate() -> None:
    """The item rate is attained by some pair of points, whatever the metric."""
    for space in (Integers(0, 9), Grid(3, 3, 1.0), TREE, nested_squares(levels=2, side=8.0)):
        people = users_of(space, 5)
        target = Target(5.0, 1e-6, people.diameter)
        make = item_randomizers(people)
        item_rate, _, randomizer = item_calibration(people, target, 1000, 5, make, together=True)
        rows = np.log(np.asarray(randomizer.rows())[:, : people.size])
        distances = people.distances
        losses = np.abs(rows[:, None, :] - rows[None, :, :]).max(axis=2)
        rates = losses[distances > 0.0] / distances[distances > 0.0]
        assert item_rate * (1.0 - 1e-6) <= rates.max() <= item_rate * (1.0 + 1e-12)


def test_what_both_offers_share_is_what_each_would_have() -> None:
    """A shared randomizer gives each offer its own errors, guarantees and fallback."""
    made = item_plan(Integers(0, 40), 10, 30, Target(2.0, 1e-6, 5.0))
    both = {trusted: trusting(made, trusted) for trusted in ("nobody", "shuffler")}
    randomizers = [
        one.protocol.randomizer for one in both.values() if isinstance(one.protocol, Frequencies)
    ]
    assert randomizers[0] is randomizers[1]
    for one in both.values():
        assert one.choice.expected_error == simulated_error(one.query, one.protocol, 30)
        one.task.verify()
    assert made.choice.other_errors == other_errors(made.query, made.protocol, 30)
    assert [offer.other_errors for offer in made.candidates if offer is not made.choice] == [
        {}
    ]  # simulated for what is chosen only
    many = item_plan(
        Integers(0, 40), 10, 10**6, Target(2.0, 1e-6, 5.0)
    )  # here the shuffler allows a larger rate
    alone, shuffled = (trusting(many, trusted).choice for trusted in ("nobody", "shuffler"))
    assert shuffled.item_rate > 2.0 * alone.item_rate  # type: ignore[operator]
    assert shuffled.expected_error < 0.5 * alone.expected_error


@pytest.mark.parametrize(
    ("items", "item_rate", "delta"),
    [(10, 0.3, 1e-4), (100, 0.3, 1e-9), (1000, 0.01, 1e-9), (1000, 0.3, 1e-4)],
)
def test_what_is_left_of_users_items_is_the_least_that_is_certified(
    items: int, item_rate: float, delta: float
) -> None:
    """The user's own reports are certified at the stated epsilon, not at 2/1000 less."""
    query = UserHistogram(users_of(Integers(0, 1), items))
    accounts = ItemAccounts(
        query, KaryRandomizedResponse(2, item_rate), item_rate, items, drawn=False, together=True
    )
    told = accounts.alone(Target(1.0, delta, 1.0), 1).epsilon
    profiles = [ItemWiseProfile(item_rate, ItemShuffle(items, items)) for _ in range(2)]
    assert profiles[0].covers_at(told, delta, 1.0)
    assert not profiles[1].covers_at(0.998 * told, delta, 1.0)


def test_single_items_are_accounted_for_as_any_report_is() -> None:
    """By full laws for few points: sharper than composition, verified and stated."""
    made = trusting(item_plan(Integers(0, 5), 1, 1000, Target(1.0, 1e-6, 5.0)), "shuffler")
    assert made.choice.item_rate is not None
    assert made.choice.item_rate > 2.6 / 5.0
    assert made.guarantee.bound == "shuffled single items"
    made.task.verify()


def test_a_singular_channel_is_refused() -> None:
    """Its inversion does not exist."""
    with pytest.raises(NotCertified, match="condition number"):
        Inversion.of(Channel([[0.5, 0.5], [0.5, 0.5]]))


def test_ill_conditioned_reports_are_warned_about() -> None:
    """In the plan and in its releases; others are not."""
    made = item_plan(Grid(3, 3, 1.0), 2, 20, Target(0.003, 1e-3, 1.0))
    assert made.choice.condition is not None
    assert made.choice.condition > 1e3
    assert (
        "Warning: item-wise (trusting shuffler) is ill-conditioned: one report counts for up to"
        in str(made)
    )
    release = made.run(np.zeros((20, 2), dtype=np.int64), Randomness.seeded(1))
    assert "Warning: Single values are mostly noise" in str(release)
    fine = item_plan(Integers(0, 2), 2, 5, Target(1.0, 0.1, 1.0))
    assert fine.choice.condition is not None
    assert fine.choice.condition < 1e3
    assert "Warning" not in str(fine)


def test_clustered_reports_invert_by_the_closed_form() -> None:
    """Inverse of Imola24's clustered response: a' on the point, b' on the cluster, c' on all."""
    for s, t, r, rate in ((3, 4, 0.3, 2.5), (8, 8, 0.05, 0.4), (2, 5, 0.9, 6.0)):
        randomizer = item_randomizers(users_of(Clustered(s, t, r)))(rate)
        assert isinstance(randomizer, ClusteredResponse)
        e = math.exp(rate)
        er = math.exp((1 - r) * rate)
        z = e + (t - 1) * er + (s - 1) * t
        a = z / (e - er)
        b = -(er - 1) * z / ((e - er) * (e + (t - 1) * er - t))
        c = -1 / (e + (t - 1) * er - t)
        assert a + t * b + s * t * c == pytest.approx(1.0, abs=1e-9)
        blocks = np.kron(np.eye(s), np.ones((t, t)))
        inverse = a * np.eye(s * t) + b * blocks + c
        np.testing.assert_allclose(randomizer.debiasing(), inverse, rtol=1e-6, atol=1e-9)
        assert (
            np.abs(np.asarray(randomizer.rows()) @ randomizer.debiasing() - np.eye(s * t)).max()
            < 5e-12
        )


def test_a_diameter_that_was_rounded_down_does_not_matter() -> None:
    """Four hundred links of 0.1 sum to less in doubles; the report still has its exact rate."""
    links = 400
    people = users_of(Tree([-1, *range(links)], [0.0] + [0.1] * links), items=2)
    exact = links * Fraction(0.1)
    item_rate, _, randomizer = item_calibration(
        people, Target(4.0, 1e-3, 40.0), 50, 2, item_randomizers(people), together=True
    )
    assert Fraction(randomizer.local_epsilon(0, links)) <= Fraction(item_rate) * exact


def test_what_draws_with_replacement_draws_each_item_as_often() -> None:
    """Two equal items of three are two thirds of the draws; everyone draws as many."""
    made = item_plan(CLUSTERS, None, 40, Target(200.0, 1e-2, 0.1, "flat"), draw=5)
    assert isinstance(made.protocol, Frequencies)
    assert made.protocol.drawn
    quiet = replace_randomizer(made.protocol)
    inputs = made.query.inputs([[0, 0, 3]] * 4000, 1.0)
    drawn = quiet.messages(inputs, Randomness.seeded("draws"))
    assert drawn.shape == (4000, 5)
    share = (drawn == 0).mean()
    assert share == pytest.approx(2 / 3, abs=4.5 * math.sqrt(2 / 9 / drawn.size))
    assert set(np.unique(drawn)) == {0, 3}


def replace_randomizer(protocol: Frequencies) -> Frequencies:
    """The same protocol with reports that tell the truth, so that what is drawn can be seen."""
    certain = Channel(np.eye(4))
    return protocol.model_copy(update={"randomizer": certain})


def test_roles_refuse_what_is_not_theirs(clusters_plan: Plan) -> None:
    """Reports of another width or kind, and users who hold another number of items."""
    made = trusting(clusters_plan, "nobody")
    reports = made.randomize([[0, 1]] * 3, Randomness.seeded(1))
    assert reports.batch.seeded
    assert made.shuffle(reports).batch.seeded
    for messages in (reports.messages[:, :1], reports.messages.astype(float), reports.messages[0]):
        with pytest.raises(PlanError, match="2 whole numbers"):
            made.shuffle(replace(made.randomize([[0, 1]]), messages=messages))
    with pytest.raises(InputError, match="from 0 to 3"):
        made.shuffle(replace(reports, messages=np.array([[0, 9]])))
    with pytest.raises(InputError, match="holds 3 items, but everybody must hold exactly 2"):
        made.randomize([[0, 1, 2]])

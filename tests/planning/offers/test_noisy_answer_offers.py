"""Noise on feature vectors: guarantees in exact arithmetic, offers per target, and errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.catalogue.small_plans import chosen
from tests.tables import check_all

from metricshuffle.accounting.sums.rare_clamping import clamping_penalty
from metricshuffle.accounting.user_items.metric_gaussian import MetricGaussian
from metricshuffle.errors import BatchTooSmall, InputError, PlanError
from metricshuffle.noise.grid_laplace import GridLaplace
from metricshuffle.planning import Candidate, Plan, plan
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.answer_features import TreeEdges
from metricshuffle.protocols.answer_noise import AnswerNoise, KNormNoise
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.protocols.tally import Batch, Shuffled
from metricshuffle.queries import UserHistogram, UserLinearQuery
from metricshuffle.queries.exact_features import ExactAnswers
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import (
    Categories,
    Clustered,
    Integers,
    Matrix,
    Scaled,
    Space,
    Tree,
    users_of,
)
from metricshuffle.spaces.metrics import Absolute
from metricshuffle.tasks.task import Task

CLUSTERS = Clustered(2, 2, 0.3)
TREE = Tree([-1, 0, 0, 1, 1, 2, 3, 3], [0, 0.1, 0.3, 0.7, 0.123, 0.33, 0.77, 0.01])
VECTORS = np.random.default_rng(0).normal(size=(9, 3))


def noise_of(offer: Candidate) -> AnswerNoise:
    assert isinstance(offer.mechanism, NoisyAnswers)
    return offer.mechanism.noise


def trusting(made: Plan, trusted: Who) -> Plan:
    """The same plan with the candidate of that trust chosen."""
    return chosen(
        made, next(index for index, offer in enumerate(made.candidates) if offer.trusted == trusted)
    )


@pytest.mark.parametrize(
    ("space", "target"),
    [
        (Clustered(3, 3, 0.05), Target(20.0, 0.0, 1.0)),
        (Clustered(3, 3, 0.05), Target(1.0, 0.0, 0.05)),
        (Integers(0, 9), Target(1.0, 0.0, 3.0)),
        (Space(Integers(0, 9), Scaled(Absolute(), 0.1)), Target(1.0, 0.0, 0.3)),
        (TREE, Target(0.7, 0.0, 1.0)),
        (Categories(["a", "b"]), Target(0.1, 0.0, 1.0)),
    ],
    ids=str,
)
def test_tree_laplace_keeps_its_rate_in_exact_arithmetic(space: Any, target: Target) -> None:
    """Exact loss between any two points is at most the rate times their distance."""
    query = UserHistogram(users_of(space))
    made = plan(query, target, 100, trusted="curator")
    coordinates = TreeEdges().coordinates(query)
    numbers = coordinates.numbers
    below = Fraction(2) ** coordinates.power
    offers = [offer for offer in made.candidates if offer.protocol == "tree-laplace"]
    assert {offer.trusted for offer in offers} == {"nobody", "curator"}
    for offer in offers:
        noise = noise_of(offer)
        assert offer.guarantee.delta == 0.0
        scale = GridLaplace.at_least(noise.scale, Fraction(noise.cell)).scale
        for a, b in itertools.combinations(range(query.people.size), 2):
            loss = (
                sum(abs(int(x) - int(y)) for x, y in zip(numbers[a], numbers[b], strict=True))
                / below
                / scale
            )
            apart = Fraction(float(query.people.distances[a, b])) * (
                1 + Fraction(8, 2**53)
            )  # sums along the tree are rounded
            assert loss <= Fraction(target.epsilon) / Fraction(target.distance) * apart
    central = next(offer for offer in offers if offer.trusted == "curator")
    assert central.fallback.epsilon == math.inf
    assert "NOT hidden" in str(central.fallback)


@check_all(
    ("epsilon", "delta"),
    [(1.0, 0.0), (1.0, 1e-9), (30.0, 1e-9), (60.0, 1e-9), (60.0, 0.0), (200.0, 1e-3)],
)
def test_no_promise_exceeds_the_target(epsilon: float, delta: float) -> None:
    """Nearly exact sampling costs (1 + e^epsilon) times its error.

    At epsilon 60 that was 5e-7 for a delta of 1e-9.
    """
    query = UserLinearQuery(users_of(Clustered(3, 3, 0.2)), VECTORS)
    made = plan(query, Target(epsilon, delta, 1.0), 100, trusted="curator")
    constants = {"laplace", "sphere", "cube", "gaussian", "k-norm"}
    for offer in made.candidates:
        if offer.protocol == "noisy-vectors":
            continue
        noise = noise_of(offer)
        assert offer.guarantee.epsilon <= epsilon
        assert offer.guarantee.delta <= delta
        lost = clamping_penalty(epsilon, noise.inexactness)
        constant = query.constant_in(noise.norm)
        if offer.protocol == "gaussian":
            assert MetricGaussian(noise.scale / constant).delta(
                epsilon, 1.0
            ) + lost <= offer.guarantee.delta * (1.0 + 1e-12)
        else:
            assert constant / noise.scale <= epsilon
            assert lost <= offer.guarantee.delta
    offered = {offer.protocol for offer in made.candidates}
    exact = {"laplace", "noisy-vectors"}
    assert offered == (exact if delta == 0.0 or epsilon >= 60.0 else exact | constants)
    skipped = {row.protocol for row in made.not_offered} - {"noisy-vectors"}
    assert skipped <= constants - offered


def test_k_norm_noise_is_chosen_where_it_errs_least() -> None:
    """Two columns of very different size: the others take the noise of the larger one for both."""
    line = np.arange(51.0)
    query = UserLinearQuery(users_of(Integers(0, 50)), np.column_stack([line, line**2 / 50.0]))
    made = plan(
        query, Target(1.0, 1e-6, 10.0), 500, trusted="curator", protocols=["k-norm", "laplace"]
    )
    assert made.choice.protocol == "k-norm"
    assert made.choice.guarantee.bound == "pure, drawn nearly exactly"
    assert 0.0 < made.choice.guarantee.delta < 1e-25
    errors = {
        offer.protocol: offer.expected_error
        for offer in made.candidates
        if offer.trusted == "curator"
    }
    assert errors["k-norm"] < 0.75 * errors["laplace"]
    noise = noise_of(made.choice)
    assert isinstance(noise, KNormNoise)
    assert query.constant_in(noise.norm) / noise.scale <= 0.1
    task = Task.from_json(made.task.to_json())
    task.verify()
    assert task.digest == made.task.digest
    release = made.run([[0, 50], [10]] * 250, Randomness.seeded(3))
    errors_of = (np.array(release.value["value"]) - (17.5, 13.5)) / release.standard_error
    assert np.abs(errors_of).max() < 5.0
    assert release.standard_error[0] < release.standard_error[1]


def test_k_norm_noise_of_a_box_is_less_than_laplace_noise_by_the_closed_form() -> None:
    """Columns that move independently: sd sqrt((D+1)(D+2)/3) for D sqrt(2)."""
    for columns, gain in ((2, 1.4142135623731), (3, 1.6431676725155)):
        corners = np.array(list(itertools.product((0.0, 1.0), repeat=columns)))
        apart = np.abs(corners[:, None] - corners[None]).max(axis=2)
        query = UserLinearQuery(users_of(Matrix(apart)), corners)
        made = plan(
            query, Target(1.0, 1e-6, 1.0), 100, trusted="curator", protocols=["k-norm", "laplace"]
        )
        noises = {o.protocol: noise_of(o) for o in made.candidates if o.trusted == "curator"}
        rounded = noises["k-norm"].cell ** 2 / 12.0
        assert math.sqrt(noises["k-norm"].variance - rounded) == pytest.approx(
            math.sqrt((columns + 1) * (columns + 2) / 3.0), rel=1e-9
        )
        assert math.sqrt(noises["laplace"].variance / noises["k-norm"].variance) == pytest.approx(
            gain, rel=1e-6
        )


def test_k_norm_noise_is_refused_with_a_sentence() -> None:
    """Without a delta, for columns that depend on each other, and for more than 8 columns."""
    line = np.arange(11.0)
    people = users_of(Integers(0, 10))
    wanted = Target(1.0, 1e-6, 1.0)
    cases: list[tuple[Any, Target, str]] = [
        (np.column_stack([line, line**2]), Target(1.0, 0.0, 1.0), "nearly exactly"),
        (np.column_stack([line, 3.0 * line + 1.0]), wanted, "linearly dependent"),
        (np.random.default_rng(0).normal(size=(11, 9)), wanted, "2 to 8 columns"),
    ]
    for table, target, words in cases:
        made = plan(UserLinearQuery(people, table), target, 100, trusted="curator")
        assert "k-norm" not in {offer.protocol for offer in made.candidates}
        row = next(row for row in made.not_offered if row.protocol == "k-norm")
        assert words in row.reason


def test_a_task_with_forged_facets_does_not_verify() -> None:
    """A thinner polytope with the same scale promises more than is true."""
    line = np.arange(11.0)
    query = UserLinearQuery(users_of(Integers(0, 10)), np.column_stack([line, line**2 / 10.0]))
    made = plan(query, Target(1.0, 1e-6, 1.0), 100, trusted="curator", protocols=["k-norm"])
    noise = noise_of(made.choice)
    assert isinstance(noise, KNormNoise)
    protocol = made.choice.mechanism
    assert isinstance(protocol, NoisyAnswers)
    swapped = tuple(row[::-1] for row in noise.facets)
    kept = [
        protocol.model_copy(update={"noise": drawn}).account(query, made.target, 100, 1).kept
        for drawn in (
            noise,
            KNormNoise(noise.scale / 2.0, noise.facets),
            KNormNoise(noise.scale, swapped),
        )
    ]
    assert kept == [True, False, False]
    finer = tuple((8 * row[0], 8 * row[1]) for row in noise.facets)
    with pytest.raises(InputError, match="too fine"):
        query.constant_in(KNormNoise(noise.scale, finer).norm)
    nobody = protocol.model_copy(update={"trusted": "nobody"})
    with pytest.raises(PlanError, match="curator only"):
        nobody.check(query)


def test_the_noise_on_the_sum_is_that_on_one_answer() -> None:
    """Only one user's answer moves in the sum; the mean divides both by the users."""
    query = UserHistogram(users_of(Integers(0, 4)))
    made = plan(query, Target(1.0, 0.0, 1.0), 50, trusted="curator", protocols=["tree-laplace"])
    noises = {offer.trusted: noise_of(offer) for offer in made.candidates}
    assert noises["nobody"] == noises["curator"]
    held = [[0, 4, 4], [1], [2, 3]]
    moved = [[0, 4, 4], [1], [2, 3, 3, 3, 3, 3]]
    answers = [
        ExactAnswers.of(TreeEdges().coordinates(query), *query.people.coded(people)).total()
        for people in (held, moved)
    ]
    assert sum(abs(a - b) for a, b in zip(*answers, strict=True)) <= Fraction(
        query.people.distance(held[2], moved[2])
    )


def test_a_gaussian_plan_promises_up_to_its_distance_only() -> None:
    """Beyond, the rate alone is not kept, and the guarantee does not say so."""
    query = UserLinearQuery.average(users_of(Space(Integers(0, 100), Scaled(Absolute(), 0.01))))
    made = plan(query, Target(1.0, 1e-6, 0.1), 100, trusted="curator", protocols=["gaussian"])
    profile = MetricGaussian(noise_of(made.choice).scale / query.constant_in("l1"))
    for apart in (0.001, 0.01, 0.05, 0.1):
        assert profile.delta(apart / 0.1, apart) <= 1e-6
    assert profile.delta(10.0, 1.0) > 1e-6
    assert made.choice.guarantee.distance == 0.1
    assert any("Replacing all" in line and "delta" in line for line in str(made).splitlines())


@check_all(
    ("call", "words"),
    [
        (lambda q: plan(q, q.people, 10), "a Target, got UserHistogram and Users"),
        (lambda q: plan(q.people, Target(1, 0, 1), 10), "needs a query"),
        (lambda q: plan(q, Target(1, 0, 1), 0), "users must be a whole number"),
        (lambda q: plan(q, Target(1, 0, 2), 10), "beyond the largest earth mover's distance, 1"),
        (
            lambda q: plan(q, Target(1, 0, 1), 10, protocols="tree-laplace"),
            "protocols must be a list",
        ),
        (
            lambda q: plan(q, Target(1, 0, 1), 10, protocols=["laplace"]),
            r"no protocol 'laplace'.*item-wise, tree-laplace",
        ),
        (lambda q: plan(q, Target(1, 0, 1), 10, protocols=[]), "protocols is empty"),
        (lambda q: plan(q, Target(1, 0, 1), 10, trusted="analyst"), "trusted must be"),  # type: ignore[arg-type]
        (
            lambda q: plan(q, Target(1, 0, 1), 10, draw=10**7),
            r"draw must be a whole number from 1 to 1e6",
        ),
        (
            lambda q: plan(UserHistogram(users_of(CLUSTERS)), Target(1, 0, 1), 10, draw="x"),  # type: ignore[arg-type]
            "draw must be",
        ),
        (lambda q: plan(q, Target(1, 1.0, 1), 10), "delta must lie in"),
        (lambda q: plan(q, Target(1, 0, 1), 10, honest=11), "cannot exceed users"),
        (
            lambda q: plan(UserLinearQuery(q.people, np.ones(4)), Target(1, 0, 1), 10),
            "f0 is the same at every point",
        ),
        (
            lambda q: plan(
                UserLinearQuery(q.people, np.eye(4)[:, :2] * [1.0, 0.0]), Target(1, 0, 1), 10
            ),
            "f1 is the same at every point",
        ),
    ],
)
def test_wrong_wishes_are_refused_in_words(call: Callable[[Any], object], words: str) -> None:
    """Each by its name."""
    with pytest.raises(InputError, match=words):
        call(UserHistogram(users_of(CLUSTERS, 2)))


def test_a_distance_below_the_nearest_points_is_refused_or_said() -> None:
    """Users of any number of items may move a part of them; who holds five can move a fifth."""
    people = users_of(Integers(0, 100, unit="km"))
    small = Target(epsilon=1.0, delta=0.0, distance=0.1)
    made = plan(UserHistogram(people), small, 50, trusted="nobody")
    assert "different points are at least 1 km apart" in str(made)
    assert "10 % of a user's items" in str(made)
    assert "different points" not in str(
        plan(UserHistogram(people), Target(1.0, 0.0, 1.0), 50, trusted="nobody")
    )
    with pytest.raises(InputError, match=r"less than the smallest move, 0\.2 km: one of 5 items"):
        plan(UserHistogram(users_of(Integers(0, 100, unit="km"), items=5)), small, 50)


@pytest.mark.thorough
def test_sentences_count_users_and_name_what_was_seen() -> None:
    """Users and items instead of people and values."""
    target = Target(epsilon=20.0, delta=1e-6, distance=1.0)
    made = plan(UserHistogram(users_of(CLUSTERS, items=3)), target, 400, 300)
    shuffled = next(offer for offer in made.candidates if offer.trusted == "shuffler")
    assert "at least 300 users are honest" in str(shuffled.guarantee)
    central = next(offer for offer in made.candidates if offer.trusted == "curator")
    assert "the curator, who sees the raw items, is honest" in str(central.guarantee)
    assert str(central.fallback).endswith("(bound: raw items seen).")
    many = plan(UserLinearQuery(users_of(CLUSTERS), np.arange(8.0).reshape(4, 2)), target, 400)
    assert {offer.guarantee.bound for offer in many.candidates} >= {
        "pure",
        "pure, drawn nearly exactly",
    }


def test_noise_beyond_all_numbers_is_a_sentence() -> None:
    """Scales that no double holds."""
    with pytest.raises(InputError, match="beyond 1e-290 to 1e290"):
        plan(UserHistogram(users_of(CLUSTERS)), Target(1e-300, 0.0, 1.0), 10, trusted="nobody")


def test_a_table_of_distances_takes_noise_on_the_shares() -> None:
    """Twice the nearest points' inverse distance; unbiased, with the exact rate."""
    # Four points of no tree: 1 + 1, 1.5 + 1.5 and 2 + 2. (Three points always are those of a star.)
    query = UserHistogram(
        users_of(
            Matrix(
                [
                    [0.0, 1.0, 2.0, 1.5],
                    [1.0, 0.0, 1.5, 2.0],
                    [2.0, 1.5, 0.0, 1.0],
                    [1.5, 2.0, 1.0, 0.0],
                ]
            )
        )
    )
    offered = plan(query, Target(4.0, 0.0, 2.0), 4000, trusted="curator")
    both = {
        ("share-laplace", "nobody"),
        ("share-laplace", "curator"),
        ("noisy-vectors", "curator"),
    }
    assert {(offer.protocol, offer.trusted) for offer in offered.candidates} == both
    assert {row.protocol for row in offered.not_offered} == {
        "tree-laplace",
        "item-wise",
        "noisy-vectors",
        "shuffler-noise",
    }
    made = plan(query, Target(4.0, 0.0, 2.0), 4000, trusted="curator", protocols=["share-laplace"])
    assert made.choice.guarantee.epsilon == 4.0
    trusts: tuple[Who, ...] = ("nobody", "curator")
    for trusted in trusts:
        release = trusting(made, trusted).run(
            [[0, 0, 1]] * 3000 + [[2]] * 1000, Randomness.seeded(5)
        )
        assert release.value["share"] == pytest.approx(
            [0.5, 0.25, 0.25, 0.0], abs=0.1 if trusted == "nobody" else 0.003
        )
        errors = (
            np.array(release.value["unbiased"]) - (0.5, 0.25, 0.25, 0.0)
        ) / release.standard_error
        assert np.abs(errors).max() < 5.0
    # One user's only item moves by 1, between the nearest points: the exact loss of the noisy
    # shares is rate * 1 at most.
    noise = noise_of(made.choice)
    assert 2.0 / float(GridLaplace.at_least(noise.scale, Fraction(noise.cell)).scale) <= 2.0 * (
        1.0 + 1e-12
    )


def test_points_at_distance_0_are_not_told_apart() -> None:
    """No noise on shares hides such a move; it is said which points those are."""
    people = users_of(Matrix([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    with pytest.raises(InputError, match="distance 0"):
        plan(UserHistogram(people), Target(1.0, 0.0, 1.0), 100)


def test_roles_refuse_what_is_not_theirs() -> None:
    """Sums of another length, batches of nobody, and a curator's plan at home."""
    noisy = plan(UserHistogram(users_of(CLUSTERS)), Target(1.0, 0.0, 1.0), 10, trusted="nobody")
    with pytest.raises(PlanError, match="6 sums"):
        noisy.estimate(Shuffled(Batch(noisy.digest), 3, 18, {0: [1, 2]}))
    with pytest.raises(BatchTooSmall):
        noisy.estimate(Shuffled(Batch(noisy.digest), 0, 0, {0: [0] * 6}))
    reports = noisy.randomize([[0], [1, 2]], Randomness.seeded(0))
    with pytest.raises(PlanError, match="6 whole numbers"):
        noisy.shuffle(replace(reports, messages=reports.messages[:, :5]))
    curator = plan(
        UserHistogram(users_of(CLUSTERS)),
        Target(1.0, 0.0, 1.0),
        10,
        trusted="curator",
        protocols=["tree-laplace"],
    )
    with pytest.raises(PlanError, match="trusts a curator, who adds noise once"):
        curator.randomize([[0]])
    assert isinstance(curator.protocol, NoisyAnswers)
    with pytest.raises(PlanError, match="hold no items"):
        curator.protocol.counted(np.array([[0, *[1] * 6]]))

"""Audits detect faults, keep their error rate and come near the truth, for all sources."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from tests.catalogue.planned_tasks import KINDS, load_task
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.auditing.distinguishing_event import best_event
from metricshuffle.auditing.neighbours import Neighbours, distance_between, neighbours_of
from metricshuffle.auditing.simulated_batches import BatchScore, drawn
from metricshuffle.errors import BatchTooSmall, InputError, PlanError
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.sums import Sums
from metricshuffle.randomizers import BinaryRandomizedResponse, KaryRandomizedResponse

SEEDED = ms.Randomness.seeded
HAIR = 1.0 + 1e-12
ANSWERS = ms.Histogram(ms.Categories(["no", "yes"]))


@cache
def responses(epsilon: float, users: int, local: float = 1.0, delta: float = 1e-6) -> ms.Task:
    """Randomized response of `users` people (1: nobody is trusted).

    The guarantee is slightly above that of the rounded law.
    """
    protocol = Frequencies(
        name="response",
        trusted="nobody" if users == 1 else "shuffler",
        randomizer=BinaryRandomizedResponse(local),
    )
    return ms.Task.of(
        ANSWERS, protocol, ms.Target(epsilon * HAIR, 0.0 if users == 1 else delta, 1, "flat"), users
    )


@cache
def local_sum() -> ms.Task:
    return ms.plan(
        ms.Sum(ms.Integers(0, 20, "kcal")), ms.Target(1, 0, 5), 40, trusted="nobody"
    ).task


def with_protocol(task: ms.Task, **changes: Any) -> ms.Task:
    """The same promise on another mechanism: what no honest planner makes."""
    protocol = task.protocol.model_copy(update=changes)
    kept = {
        name: getattr(task, name)
        for name in ("query", "users", "honest", "rounds", "guarantee", "if_shuffler_colludes")
    }
    return ms.Task(protocol=protocol, **kept)


def louder(task: ms.Task, factor: float) -> ms.Task:
    """So many times less noise on every axis of a sum."""
    protocol = task.protocol
    assert isinstance(protocol, Sums)
    return with_protocol(
        task,
        randomizers=tuple(
            part.model_copy(update={"rate": getattr(part, "rate") * factor})  # noqa: B009
            for part in protocol.randomizers
        ),
    )


# What is broken is caught


def test_half_the_noise_is_caught() -> None:
    outcome = ms.audit(louder(local_sum(), 2.0), batches=1000, randomness=SEEDED(1))
    assert outcome.refuted
    assert 1.0 < outcome.epsilon < 2.0
    assert outcome.promised == 1.0
    assert str(outcome).startswith("REFUTED: the shuffled output shows at least epsilon 1.")
    assert "at delta 0 with confidence 95 %, more than the promised 1." in str(outcome)


def test_a_randomizer_of_twice_the_epsilon_is_caught() -> None:
    task = responses(1.0, 1)
    assert not ms.audit(task, batches=800, randomness=SEEDED(2)).refuted
    broken = with_protocol(task, randomizer=BinaryRandomizedResponse(2.0))
    outcome = ms.audit(broken, batches=800, randomness=SEEDED(2))
    assert outcome.refuted
    assert 1.2 < outcome.epsilon < 2.0
    shuffled = responses(1.0, 30)
    assert ms.audit(
        with_protocol(shuffled, randomizer=BinaryRandomizedResponse(5.0)),
        batches=800,
        randomness=SEEDED(3),
    ).refuted


def test_a_sum_below_its_minimum_is_caught() -> None:
    """A mechanism for 300 people has a tenth of the noise for 30, which the audit detects."""
    task = ms.plan(
        ms.Sum(ms.Integers(0, 20)),
        ms.Target(1, 1e-6, 5),
        30,
        encoding="modular",
        transport="aggregator",
        trusted="aggregator",
        protocols=["polya-shuffle"],
    ).task
    protocol = task.protocol
    assert isinstance(protocol, Sums)
    fewer = tuple(one.model_copy(update={"shape": one.shape / 10}) for one in protocol.randomizers)  # type: ignore[union-attr]
    assert not ms.audit(task, batches=1000, randomness=SEEDED(4)).refuted
    assert ms.audit(
        with_protocol(task, randomizers=fewer), batches=1000, randomness=SEEDED(4)
    ).refuted


def unshuffled(value: int, rng: np.random.Generator, *, shuffle: bool, people: int = 30) -> Any:
    """Randomized response of one person among others who hold 0, in order or shuffled."""
    held = np.zeros(people, dtype=np.int64)
    held[7] = value
    reports = np.where(rng.random(people) < 1.0 / (1.0 + math.e), 1 - held, held)
    return rng.permutation(reports) if shuffle else reports


@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_shuffler_that_keeps_the_order_is_caught(as_bytes: bool) -> None:
    """30 shuffled reports have epsilon of about 0.9 at delta 1e-6; in order, the eighth has 1."""
    rng = np.random.default_rng(1)

    def collection(shuffle: bool) -> Callable[[int], Any]:
        def collect(value: int) -> Any:
            seen = unshuffled(value, rng, shuffle=shuffle)
            return seen.astype(np.uint8).tobytes() if as_bytes else seen

        return collect

    asked: dict[str, Any] = {
        "batches": 3000,
        "epsilon": 0.7,
        "delta": 1e-6,
        "randomness": SEEDED(1),
    }
    caught, honest = (ms.audit(collection(shuffle), 0, 1, **asked) for shuffle in (False, True))
    assert caught.refuted
    assert caught.epsilon > 0.75
    assert not honest.refuted


def test_lengths_words_and_single_numbers_tell() -> None:
    rng = np.random.default_rng(2)
    leaks: dict[str, Callable[[int], Any]] = {
        "length": lambda value: list(rng.integers(0, 9, 5 + (rng.random() < 0.2 + 0.6 * value))),
        "words": lambda value: "yes" if rng.random() < 0.2 + 0.6 * value else "no",
        "a list of words": lambda value: list(
            rng.permutation(["a", "b", "c" if rng.random() < 0.2 + 0.6 * value else "d"])
        ),
        "a number": lambda value: rng.laplace() + 2.0 * value,
        "a spread": lambda value: rng.normal(size=20) * (1.0 + value),
        "a place of many": lambda value: (
            rng.normal(size=300) + 3.0 * value * (np.arange(300) == 123)
        ),
        "a bool": lambda value: rng.random() < 0.2 + 0.6 * value,
    }
    for name, collect in leaks.items():
        outcome = ms.audit(collect, 0, 1, batches=1200, randomness=SEEDED(name))
        assert outcome.epsilon > 0.8, name
        assert outcome.promised is None
        assert not outcome.refuted
        assert str(outcome).startswith("The output shows at least epsilon ")


def test_a_score_of_ones_own() -> None:
    rng = np.random.default_rng(3)

    def hidden(value: int) -> dict[str, float]:
        return {"seen": rng.laplace() + value, "noise": rng.normal()}

    with pytest.raises(InputError, match="give a score that turns it into a number"):
        ms.audit(hidden, 0, 1, batches=100)
    outcome = ms.audit(
        hidden,
        0,
        1,
        batches=4000,
        epsilon=1.0,
        score=lambda output: output["seen"],
        randomness=SEEDED(1),
    )
    assert 0.8 < outcome.epsilon <= 1.0
    with pytest.raises(InputError, match="some are NaN"):
        ms.audit(hidden, 0, 1, batches=100, score=lambda output: math.nan)
    with pytest.raises(InputError, match="a score must be a number"):
        ms.audit(hidden, 0, 1, batches=100, score=lambda output: "large")  # type: ignore[arg-type, return-value]


def test_batches_of_a_deployed_shuffler() -> None:
    """Observed batches are consistent as guaranteed, and refuted with half the noise."""
    task = local_sum()
    for factor, refuted in ((1.0, False), (2.0, True)):
        maker = louder(task, factor)
        pair = Neighbours(0, 5, [], "")
        parts = list(drawn(maker, pair, 500, SEEDED(factor.hex())))
        sides = tuple([batch for part in parts for batch in part[side]] for side in (0, 1))
        seen = tuple([of_task(task, batch) for batch in side] for side in sides)
        outcome = ms.audit(task, 0, 5, observed=seen)  # type: ignore[arg-type]
        assert outcome.refuted is refuted
        assert outcome.batches == (250, 250)
        assert outcome.epsilon > 0.5
        exchanged = ms.audit(task, 5, 0, observed=(seen[1], seen[0]))
        assert exchanged.epsilon == pytest.approx(outcome.epsilon)


def of_task(task: ms.Task, batch: ms.Shuffled) -> ms.Shuffled:
    """The same sums under another task's name: what a broken client sends in."""
    return ms.Shuffled(task.batch(), batch.people, batch.messages, batch.sums, batch.modulus)


def test_observed_counts_of_reports_need_not_say_what_the_others_hold() -> None:
    task = responses(1.0, 30)
    pair = neighbours_of(task, 30, "no", "yes")[0]
    broken = with_protocol(task, randomizer=BinaryRandomizedResponse(5.0))
    for maker, refuted in ((task, False), (broken, True)):
        sides = [
            [
                of_task(task, batch)
                for part in drawn(maker, pair, 400, SEEDED(1))
                for batch in part[side]
            ]
            for side in (0, 1)
        ]
        assert ms.audit(task, "no", "yes", observed=(sides[0], sides[1])).refuted is refuted


# How near, and how often wrong


def test_one_report_is_told_apart_nearly_as_well_as_can_be() -> None:
    outcome = ms.audit(responses(1.0, 1), batches=3000, randomness=SEEDED(5))
    assert 0.85 < outcome.epsilon < 1.0
    assert outcome.most == pytest.approx(math.log(1500 / -math.log(0.025)), rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "delta", "batches", "near"), [(10, 1e-6, 100_000, 0.8), (20, 1e-2, 200_000, 0.7)]
)
def test_shuffled_reports_come_within_seventy_per_cent_of_the_true_epsilon(
    users: int, delta: float, batches: int, near: float
) -> None:
    """The true epsilon of shuffled binary response is known exactly (two reports)."""
    band = ms.amplify(BinaryRandomizedResponse(1.0), users).epsilon(delta)
    assert band.upper < band.lower * 1.001
    outcome = ms.audit(
        responses(round(1.2 * band.upper, 3), users, delta=delta),
        batches=batches,
        randomness=SEEDED(6),
    )
    assert near * band.lower < outcome.epsilon <= band.upper


@pytest.mark.slow
def test_correct_mechanisms_are_refuted_no_more_often_than_the_confidence_allows() -> None:
    """200 audits at 70 % of exact guarantees: a one-sided binomial test at 1 in 1,000."""
    task = responses(1.0, 1)
    wrong = sum(
        ms.audit(task, batches=200, confidence=0.7, randomness=SEEDED(run)).refuted
        for run in range(200)
    )
    assert wrong <= binom.ppf(0.999, 200, 0.3)
    rng = np.random.default_rng(1)
    wrong = sum(
        ms.audit(
            lambda value: rng.integers(0, 3, 4),
            0,
            1,
            batches=80,
            epsilon=0.0,
            confidence=0.5,
            randomness=SEEDED(run),
        ).refuted
        for run in range(200)
    )
    assert wrong <= binom.ppf(0.999, 200, 0.5)


def test_what_is_learned_is_not_believed() -> None:
    """Without a leak, 2 of 40 audits see something at even odds.

    It would be 13 if the choosing batches were counted again.
    """
    rng = np.random.default_rng(7)
    wrong = [
        ms.audit(
            lambda value: rng.integers(0, 3, 4),
            0,
            1,
            batches=80,
            epsilon=0.0,
            confidence=0.5,
            randomness=SEEDED(run),
        ).refuted
        for run in range(40)
    ]
    assert sum(wrong) <= 6


# Every kind of task


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_task_is_consistent(kind: str) -> None:
    task = load_task(kind)
    outcome = ms.audit(
        task, batches=60 if task.minimum > 1000 else 1000, confidence=0.999, randomness=SEEDED(kind)
    )
    assert not outcome.refuted
    assert outcome.promised is not None
    assert outcome.delta == task.guarantee.delta
    pure = {
        "local sum",
        "aggregated sum",
        "curator's sum",
        "two rounds",
        "users' histogram",
        "users' mean",
        "curator's histogram",
    }
    if kind in pure | {
        "unary sum",
        "bounded sum",
        "sum in shares",
        "centroid",
        "mean of real numbers",
    }:
        assert outcome.epsilon > 0.25 * outcome.promised


def test_pairs_are_as_far_apart_as_is_promised_and_no_farther() -> None:
    """At the guaranteed distance; uniform reports as near as a linear guarantee resolves."""
    line = ms.Histogram(ms.Integers(0, 9))
    alike = Frequencies(
        name="response", trusted="nobody", randomizer=KaryRandomizedResponse(10, 0.3)
    )
    tasks = {
        local_sum(): 5.0,
        ms.Task.of(line, alike, ms.Target(0.9 * HAIR, 0.0, 3.0), 5): 1.0,
        ms.Task.of(line, alike, ms.Target(0.3 * HAIR, 0.0, 3.0, "flat"), 5): 3.0,
        responses(1.0, 30): 1.0,
    }
    for task, distance in tasks.items():
        for pair in neighbours_of(task, task.minimum):
            assert (
                distance_between(task.query, task.protocol.step, pair.first, pair.second)
                == distance
            )
            assert pair.others is not None
            assert len(pair.others) == task.minimum - 1


def test_a_nearer_pair_has_its_own_promise() -> None:
    outcome = ms.audit(local_sum(), 3, 5, batches=400, randomness=SEEDED(1))
    assert outcome.promised == pytest.approx(0.4)
    assert (outcome.first, outcome.second) == ("3 kcal", "5 kcal")


def test_the_score_of_counts_is_the_likelihood_ratio() -> None:
    """For three people, two of whom hold "no": against the probabilities of all outcomes."""
    task = responses(1.0, 3)
    keep = math.e / (1.0 + math.e)
    pair = Neighbours("no", "yes", ["no", "no"], "")
    laws = []
    for truth in (keep, 1.0 - keep):  # of a report "no"
        law = [0.0] * 4
        for hers, one, other in np.ndindex(2, 2, 2):
            law[hers + one + other] += (
                (truth if hers else 1 - truth)
                * (keep if one else 1 - keep)
                * (keep if other else 1 - keep)
            )
        laws.append(law)
    batches = [ms.Shuffled(task.batch(), 3, 3, {0: [count, 3 - count]}) for count in range(4)]
    assert BatchScore(task, pair)(batches) == pytest.approx(
        [math.log(a / b) for a, b in zip(*laws, strict=True)]
    )


def test_the_score_of_two_axes_is_the_likelihood_ratio_of_the_noise() -> None:
    """Geometric noise: rate times the move at the first cell, 0 in the middle."""
    task = ms.plan(ms.Centroid(ms.Grid(9, 7, 10.0)), ms.Target(2, 0, 60), 20, trusted="nobody").task
    protocol = task.protocol
    assert isinstance(protocol, Sums)
    assert protocol.modulus is not None
    rate = protocol.randomizers[0].rate  # type: ignore[union-attr]
    batches = [
        ms.Shuffled(task.batch(), 1, 2, {0: place}, protocol.modulus)
        for place in ([0, 0], [2, 2], [4, 4], [9, 9])
    ]
    scores = BatchScore(task, Neighbours((0, 0), (4, 4), [], ""))(batches)
    assert scores == pytest.approx([8 * rate, 0.0, -8 * rate, -8 * rate], abs=1e-9)


def test_the_score_of_a_vector_is_the_difference_of_distances() -> None:
    users = ms.users_of(ms.Space(ms.Integers(0, 20)))
    task = ms.plan(
        ms.UserLinearQuery.average(users),
        ms.Target(2, 0, 5),
        20,
        trusted="nobody",
        protocols=["laplace"],
    ).task
    cell = task.protocol.noise.cell  # type: ignore[attr-defined]
    middle = 10.0
    batches = [
        ms.Shuffled(task.batch(), 1, 1, {0: [round((value - middle) / cell)]})
        for value in (-3.0, 4.0, 6.0, 99.0)
    ]
    scores = BatchScore(task, Neighbours([4, 4], [6], [], ""))(batches)
    assert scores == pytest.approx([2.0, 2.0, -2.0, -2.0], abs=2 * cell)


def test_events_from_either_end_and_for_either_input() -> None:
    rng = np.random.default_rng(1)
    high = rng.normal(size=500) + 2.0
    low = rng.normal(size=500)
    for first, second, above, exchanged in ((high, low, True, False), (low, high, False, False)):
        event, apparent = best_event((first, second), 0.0, 0.05)
        assert apparent > 1.0
        assert (event.above, event.exchanged) in ((above, exchanged), (not above, not exchanged))
        likelier, other = event.seen((first, second))
        assert likelier.hits > 3 * other.hits
    rare = np.where(rng.random(500) < 0.3, 5.0, 0.0)  # happens on the second input only
    event, _ = best_event((np.zeros(500), rare), 0.0, 0.05)
    assert (event.threshold, event.above, event.exchanged) == (5.0, True, True)


def test_others_as_given() -> None:
    task = responses(1.0, 30)
    assert not ms.audit(
        task, "yes", "no", others=["yes"] * 15 + ["no"] * 14, batches=200, randomness=SEEDED(1)
    ).refuted
    with pytest.raises(BatchTooSmall, match="at least 30 honest ones"):
        ms.audit(task, "yes", "no", others=["yes"] * 5, batches=200)


def test_a_plan_is_audited_as_its_task() -> None:
    made = ms.plan(ms.Sum(ms.Integers(0, 20)), ms.Target(1, 0, 5), 40, trusted="nobody")
    one, other = (
        ms.audit(source, batches=200, randomness=SEEDED(1)) for source in (made, made.task)
    )
    assert one == other


def test_what_is_printed_is_rounded_to_the_safe_side() -> None:
    """An epsilon that is shown and a confidence down, what was promised up."""
    outcome = ms.Audit(
        0.123456, 1.23456e-6, 1.0 - 1e-9, 0.111111, "a", "b", "", (90, 80), (7, 1), 3.45678
    )
    assert outcome.refuted
    told = str(outcome)
    assert (
        "at least epsilon 0.1234 at delta 1.24e-06 with confidence 99.9999 %, more than "
        "the promised 0.1112." in told
    )
    assert "in 7 of 90 batches with a and in 1 of 80 with b; it was chosen" in told
    assert "up to epsilon 3.456" in told
    assert "confidence 57 %" in str(
        ms.audit(local_sum(), batches=50, confidence=0.57, randomness=SEEDED(1))
    )


def test_an_audit_tells_how_far_it_is_and_can_be_stopped() -> None:
    said: list[str] = []
    ms.audit(responses(1.0, 30), batches=100, progress=said.append, randomness=SEEDED(1))
    assert said[-1] == "counting: 50 of 50 batches on each input"

    def stop(words: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ms.audit(responses(1.0, 30), batches=100, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        ms.audit(lambda value: value, 0, 1, batches=100, progress=stop)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "confidence": (
        lambda: ms.audit(local_sum(), confidence=1.0),
        "confidence must lie strictly between 0 and 1",
    ),
    "no confidence": (lambda: ms.audit(local_sum(), confidence=math.nan), "confidence must lie"),
    "few batches": (
        lambda: ms.audit(local_sum(), batches=7),
        "batches must be a whole number from 8",
    ),
    "batches": (lambda: ms.audit(local_sum(), batches=1e4), "batches must be a whole number"),  # type: ignore[arg-type]
    "one input": (lambda: ms.audit(local_sum(), 3), "give both inputs"),
    "the same": (lambda: ms.audit(local_sum(), 3, 3), "the two inputs are the same"),
    "too far": (lambda: ms.audit(local_sum(), 3, 9), "6 kcal apart, and the promise covers 5"),
    "outside": (lambda: ms.audit(local_sum(), 3, 99), "99"),
    "nothing": (lambda: ms.audit(3, 0, 1), "audit needs a plan, a task or a function"),  # type: ignore[arg-type]
    "epsilon": (lambda: ms.audit(local_sum(), epsilon=1.0), "a task says what it promises"),
    "score": (lambda: ms.audit(local_sum(), score=float), "a task says what it promises"),
    "others": (lambda: ms.audit(lambda value: value, 0, 1, others=[1]), "belong to a task"),
    "a negative promise": (
        lambda: ms.audit(lambda value: value, 0, 1, epsilon=-1.0),
        "epsilon must be a number >= 0",
    ),
    "delta": (lambda: ms.audit(lambda value: value, 0, 1, delta=1.0), "delta must be a number in"),
    "no outputs": (
        lambda: ms.audit(lambda value: None, 0, 1, batches=50),
        "an output must be a number",
    ),
    "nan": (
        lambda: ms.audit(lambda value: math.nan, 0, 1, batches=50),
        "an output must be a number",
    ),
    "mixed": (
        lambda: ms.audit(lambda value: "a" if value else 1, 0, 1, batches=50),
        "some outputs are words and others numbers",
    ),
    "observed": (
        lambda: ms.audit(local_sum(), observed=([], [])),
        "say which two inputs were injected",
    ),
    "few observed": (
        lambda: ms.audit(local_sum(), 0, 5, observed=([], [])),
        "at least 8 shuffled batches",
    ),
    "observed and drawn": (
        lambda: ms.audit(local_sum(), 0, 5, observed=([], []), batches=9),
        "leave batches and others out",
    ),
}


@check_all("name", WRONG)
def test_what_is_wrong_is_told_in_a_sentence(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(InputError, match=words) as told:
        call()
    assert str(told.value).endswith(".")


def test_batches_that_the_promise_does_not_cover_are_refused() -> None:
    task = responses(1.0, 30)
    small = [ms.Shuffled(task.batch(), 29, 29, {0: [14, 15]}) for _ in range(10)]
    with pytest.raises(BatchTooSmall, match="at least 30 honest ones"):
        ms.audit(task, "no", "yes", observed=(small, small))


def test_batches_of_another_task_are_refused() -> None:
    batches = [
        batch
        for part in drawn(louder(local_sum(), 2.0), Neighbours(0, 5, [], ""), 10, SEEDED(1))
        for batch in part[0]
    ]
    with pytest.raises(PlanError, match="another task"):
        ms.audit(local_sum(), 0, 5, observed=(batches, batches))

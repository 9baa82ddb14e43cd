"""Verification of tasks: every false claim is found by recomputing, whoever signed it."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from tests.catalogue.planned_tasks import KINDS, load_task, signed, stored
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.errors import MetricShuffleError, NotCertified, PlanError
from metricshuffle.models import content_digest
from metricshuffle.protocols.answer_noise import AnswerNoise
from metricshuffle.randomizers import Channel
from metricshuffle.tasks import Task, write_reports

Change = Callable[[Any], Any]
REFUSED = "claims more than is true|cannot be certified"


def half(number: float) -> float:
    return number / 2


def times(factor: float) -> Change:
    return lambda number: type(number)(number * factor)


def to(value: Any) -> Change:
    return lambda _: value


def changed(kind: str, *changes: tuple[str, Change]) -> str:
    """Text of a task with the fields at these paths changed and a valid digest.

    A path is, for example, `guarantee.epsilon`.
    """
    content = stored(kind)
    for path, change in changes:
        *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
        place: Any = content
        for step in steps:
            place = place[step]
        place[last] = change(place[last])
    return signed(content)


@check_all("kind", KINDS)
def test_what_was_planned_is_certified_again_from_its_file(kind: str) -> None:
    """A task verifies after a round trip, also with a recomputed digest."""
    assert signed(stored(kind)) == load_task(kind).to_json()
    Task.from_json(load_task(kind).to_json()).verify()


NOISE: dict[str, tuple[str, str, Change]] = {
    "a larger rate": ("unary sum", "protocol.randomizers.0.rate", times(1.02)),
    "a larger rate of bounded noise": ("bounded sum", "protocol.randomizers.0.rate", times(1.02)),
    "a larger rate in shares": ("sum in shares", "protocol.randomizers.0.rate", times(1.02)),
    "a larger rate for an aggregator": (
        "aggregated sum",
        "protocol.randomizers.0.rate",
        times(1.02),
    ),
    "a larger rate of one report": ("local sum", "protocol.randomizers.0.rate", times(1.001)),
    "a larger rate of a curator": ("curator's sum", "protocol.randomizers.0.rate", times(1.001)),
    "a smaller shape": ("unary sum", "protocol.randomizers.0.shape", to("1/31")),
    "a smaller shape in shares": ("sum in shares", "protocol.randomizers.0.shape", to("1/31")),
    "a smaller radius": ("unary sum", "protocol.randomizers.0.radius", times(0.5)),
    "a smaller radius of bounded noise": (
        "bounded sum",
        "protocol.randomizers.0.radius",
        times(0.5),
    ),
    "a smaller flip": ("flipped bits", "protocol.randomizers.0.flip", lambda flip: flip - 2**-8),
    "fewer shares": ("sum in shares", "protocol.shares", lambda shares: shares - 2),
    "a larger modulus for the same shares": ("sum in shares", "protocol.modulus", times(2**20)),
    "a larger rate after rounding": (
        "mean of real numbers",
        "protocol.randomizers.0.rate",
        times(1.02),
    ),
    "finer rounding": (
        "mean of real numbers",
        "protocol.randomizers.0.granularity",
        lambda grain: grain // 2,
    ),
    "a hat with a larger rate": ("witch hat", "protocol.randomizer.rate", times(1.05)),
    "more epsilon for a label": ("labels", "protocol.randomizer.epsilon", times(1.02)),
    "more epsilon for a bin": ("line", "protocol.randomizer.epsilon", times(1.02)),
    "more epsilon for a cell": ("map", "protocol.randomizer.epsilon", times(1.02)),
    "more epsilon for an item": ("users' items", "protocol.randomizer.epsilon", times(1.02)),
    "a smaller item rate": ("users' items", "protocol.item_rate", times(0.9)),
    "more samples": ("users' samples", "protocol.items", to(6)),
    "a smaller scale": ("users' histogram", "protocol.noise.scale", times(0.999)),
    "a smaller scale of a mean": ("users' mean", "protocol.noise.scale", times(0.999)),
    "a smaller scale of a curator": ("curator's histogram", "protocol.noise.scale", times(0.999)),
    "a larger rate of vectors": ("vectors of labels", "protocol.factor", times(1.001)),
    "a larger rate of a map": ("vectors of a map", "protocol.factor", times(1.001)),
    "a larger rate of users' vectors": ("users' vectors", "protocol.factor", times(1.001)),
    "a larger rate of a curator's vectors": ("curator's vectors", "protocol.factor", times(1.001)),
    "noise of more people than are honest": ("vectors of a line", "protocol.sharers", times(2)),
    "fewer shares of vectors": ("vectors of a line", "protocol.shares", lambda shares: shares - 2),
    "more coordinates in a message": (
        "vectors of a line",
        "protocol.together",
        lambda together: together + 20,
    ),
    "a larger modulus for the same vectors": (
        "vectors of a line",
        "protocol.modulus",
        times(2**20),
    ),
    "a floor that hides less": ("vectors of labels", "protocol.floor.epsilon", times(1.02)),
    "other features": ("vectors of a line", "protocol.features.width", lambda width: width + 1),
    "finer units of a vector": ("users' vectors", "protocol.units", times(2)),
    "averages that are not rounded at random": ("users' vectors", "protocol.rounding", to(None)),
    "means in finer units": (
        "users' means in shares",
        "protocol.divisor",
        lambda divisor: divisor // 2,
    ),
    "a larger rate of means": ("users' means in shares", "protocol.factor", times(1.001)),
    "columns of another scale": (
        "users' means in shares",
        "protocol.features.scales",
        lambda scales: [2.0 * scale for scale in scales],
    ),
    "smaller columns": (
        "users' means in shares",
        "protocol.features.numbers",
        lambda rows: [[number // 2 for number in row] for row in rows],
    ),
    "another step": ("unary sum", "protocol.step", to(2.0)),
    "another step of real numbers": ("mean of real numbers", "protocol.step", times(2.0)),
    "another span": ("unary sum", "protocol.randomizers.0.span", to(10)),
    "a wider domain": ("unary sum", "query.domain.high", to(40)),
    "another label": ("labels", "query.domain.labels", lambda labels: [*labels, "milk"]),
    "more items": ("users' items", "query.people.items", to(4)),
    "nobody to hide among": ("unary sum", "protocol.trusted", to("nobody")),
    "an unseen curator": ("labels", "protocol.trusted", to("curator")),
    "a shuffler that adds nothing": ("curator's sum", "protocol.trusted", to("nobody")),
    "fewer honest people": ("unary sum", "honest", to(20)),
    "fewer honest users": ("users' items", "honest", to(1500)),
    "one more round": ("local sum", "rounds", to(2)),
    "one more round of labels": ("labels", "rounds", to(2)),
}


@check_all("lie", NOISE)
def test_noise_that_hides_less_than_is_claimed(lie: str) -> None:
    """Parameters of the mechanism that were changed, with the claims left as they are."""
    kind, path, change = NOISE[lie]
    with pytest.raises(NotCertified, match=REFUSED):
        Task.from_json(changed(kind, (path, change))).verify()


CLAIMS: dict[str, tuple[tuple[str, ...], str, Change]] = {
    "a smaller epsilon": (KINDS, "guarantee.epsilon", times(0.9)),
    "a smaller delta": (
        ("unary sum", "sum in shares", "flipped bits", "labels", "map", "witch hat"),
        "guarantee.delta",
        times(1e-6),
    ),
    "no delta": (
        ("unary sum", "bounded sum", "sum in shares", "flipped bits", "labels", "users' items"),
        "guarantee.delta",
        to(0.0),
    ),
    "a larger distance": (
        ("unary sum", "sum in shares", "local sum", "line", "map", "centroid", "users' mean"),
        "guarantee.distance",
        times(1.25),
    ),
    "people together": (
        ("mean of real numbers", "labels", "map", "witch hat"),
        "guarantee.protects",
        to("people together"),
    ),
    "fewer honest reports": (
        ("unary sum", "labels", "users' items"),
        "guarantee.trust.honest_reports",
        to(2),
    ),
    "honest reports do not matter": (
        ("unary sum", "labels"),
        "guarantee.trust.honest_reports",
        to(None),
    ),
    "nobody is trusted": (
        ("unary sum", "labels", "curator's sum"),
        "guarantee.trust.trusted",
        to("nobody"),
    ),
    "more rounds": (KINDS, "guarantee.rounds", to(3)),
    "in proportion": (("users' samples",), "guarantee.shape", to("linear")),
    "any number of items": (("users' items",), "guarantee.items", to("any")),
    "another unit": (("unary sum", "map"), "guarantee.unit", to("km")),
    "between something else": (
        ("map", "mean of real numbers", "unary sum"),
        "guarantee.between",
        to("anything"),
    ),
    "words of its own": (
        KINDS,
        "guarantee.bound",
        to("exact). Nothing can ever be learnt (bound: exact"),
    ),
    "a smaller epsilon if it colludes": (
        tuple(kind for kind in KINDS if not kind.startswith("curator")),
        "if_shuffler_colludes.epsilon",
        times(0.98),
    ),
    "an epsilon of what a curator sees": (
        ("curator's sum", "curator's histogram"),
        "if_shuffler_colludes.epsilon",
        to(10.0),
    ),
    "a smaller delta if it colludes": (
        ("bounded sum", "users' items", "users' samples"),
        "if_shuffler_colludes.delta",
        half,
    ),
    "a larger distance if it colludes": (KINDS, "if_shuffler_colludes.distance", times(1.1)),
    "people together if it colludes": (
        ("unary sum", "labels"),
        "if_shuffler_colludes.protects",
        to("people together"),
    ),
    "in proportion if it colludes": (
        ("unary sum", "labels"),
        "if_shuffler_colludes.shape",
        to("linear"),
    ),
    "other words if it colludes": (
        ("unary sum", "map"),
        "if_shuffler_colludes.bound",
        to("nothing to see here"),
    ),
    "more rounds if it colludes": (
        ("unary sum", "labels", "users' items"),
        "if_shuffler_colludes.rounds",
        to(2),
    ),
}


@check_all(
    ("lie", "kind"), [(lie, kind) for lie, (kinds, _, _) in CLAIMS.items() for kind in kinds]
)
def test_claims_that_say_more_than_is_true(lie: str, kind: str) -> None:
    """Every field of both guarantees, changed to claim more or something else."""
    _, path, change = CLAIMS[lie]
    with pytest.raises(NotCertified, match=REFUSED):
        Task.from_json(changed(kind, (path, change))).verify()


def test_the_argument_is_looked_for_once_and_only_for_what_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which bound decides takes as long as all the rest of a verification."""
    looks: list[float] = []
    decisive = BestBoundProfile.decisive

    def counted(self: BestBoundProfile, epsilon: float, *rest: Any) -> str:
        looks.append(epsilon)
        return decisive(self, epsilon, *rest)

    monkeypatch.setattr(BestBoundProfile, "decisive", counted)
    task = Task.from_json(load_task("labels").to_json())
    forged = Task.from_json(changed("labels", ("guarantee.epsilon", times(0.9))))
    looks.clear()
    task.verify()
    assert len(looks) == 1
    with pytest.raises(NotCertified, match=REFUSED):
        forged.verify()
    assert len(looks) == 1


def test_all_rounds_belong_to_the_promise() -> None:
    """Noise of one round does not meet two, whatever is stated; two rounds' meets one."""
    fewer = [
        (path, to(1)) for path in ("rounds", "guarantee.rounds", "if_shuffler_colludes.rounds")
    ]
    Task.from_json(
        changed("two rounds", *fewer, ("if_shuffler_colludes.bound", to("exact")))
    ).verify()
    more = [(path, to(2)) for path in ("rounds", "guarantee.rounds", "if_shuffler_colludes.rounds")]
    with pytest.raises(NotCertified, match=REFUSED):
        Task.from_json(changed("local sum", *more)).verify()


def test_fewer_honest_people_in_all_places_at_once() -> None:
    """Noise for thirty honest people does not meet a claim for twenty."""
    with pytest.raises(NotCertified, match="is not what its noise gives; do not take part"):
        Task.from_json(
            changed("unary sum", ("honest", to(20)), ("guarantee.trust.honest_reports", to(20)))
        ).verify()


@check_all(
    ("kind", "path", "change"),
    [
        ("unary sum", "guarantee.epsilon", times(1.1)),
        ("labels", "guarantee.delta", times(10.0)),
        ("unary sum", "guarantee.protects", to("one person")),
        ("unary sum", "if_shuffler_colludes.epsilon", times(1.1)),
        ("labels", "if_shuffler_colludes.epsilon", to(None)),
        ("unary sum", "if_shuffler_colludes.distance", times(0.6)),
        ("unary sum", "users", to(50)),
    ],
)
def test_a_task_may_promise_less_than_it_keeps(kind: str, path: str, change: Change) -> None:
    """Weaker claims are true: what is false would raise."""
    weaker = Task.from_json(changed(kind, (path, change)))
    weaker.verify()
    assert weaker.digest != load_task(kind).digest


@check_all(
    "words",
    [
        "kcal.\nVerified: nothing can be learnt",
        "kcal\x1b[8m",
        "kcal, and nothing else will ever be known " * 2,
    ],
)
def test_words_that_would_pass_for_a_promise(words: str) -> None:
    """Line ends, control characters and sentences in names and units are rejected."""
    everywhere = ("query.domain.unit", "guarantee.unit", "if_shuffler_colludes.unit")
    for text in (
        changed("unary sum", *((path, to(words)) for path in everywhere)),
        changed("unary sum", ("protocol.name", to(words))),
    ):
        with pytest.raises(
            NotCertified, match="could be mistaken for something else where it is printed"
        ):
            Task.from_json(text).verify()
    if "\n" in words:
        with pytest.raises(
            NotCertified, match="could be mistaken for something else where it is printed"
        ):
            Task.from_json(changed("labels", ("query.domain.labels.0", to(words)))).verify()


@check_all(
    "path",
    ["users", "honest", "query.domain.high", "guarantee.epsilon", "guarantee.sentence", "digest"],
)
def test_an_edited_task_has_another_digest(path: str) -> None:
    """Any edit without a new digest is rejected, also of the sentence for readers."""
    content = stored("unary sum")
    *steps, last = path.split(".")
    place = content
    for step in steps:
        place = place[step]
    place[last] = (
        place[last] + 1 if not isinstance(place[last], str) else place[last].replace("e", "f", 1)
    )
    with pytest.raises(
        PlanError,
        match="digest does not match its content: the file was edited or damaged; ask for it again",
    ):
        Task.from_json(json.dumps(content))


def test_a_changed_copy_is_compared_with_its_digest_again() -> None:
    """A check does not carry over to copies, or to new objects in its memory."""
    for _ in range(20):
        task = Task.from_json(load_task("unary sum").to_json())
        assert Task.model_validate(task) is task
        other = task.model_copy(update={"users": task.users + 1})
        del task
        for copied in (other, other.model_copy()):
            with pytest.raises(ValidationError, match="digest does not match its content"):
                Task.model_validate(copied)


@check_all(
    ("text", "told"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "nests too deeply"),
        ('{"users": ' + "9" * 5000 + "}", "thousands of digits"),
        ("null", "its format is None"),
        ('{"format": "metricshuffle-plan/2"}', "not 'metricshuffle-task/1'"),
        ('{"format": "metricshuffle-task/1"}', "has no digest"),
    ],
)
def test_wrong_texts_are_refused_as_a_task(text: str, told: str) -> None:
    """Anything else is told apart in words, what nests without end included."""
    with pytest.raises(PlanError, match=told):
        Task.from_json(text)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind",
    ["unary sum", "mean of real numbers", "labels", "map", "users' mean", "curator's histogram"],
)
def test_whatever_stands_in_a_field_is_refused_in_words(kind: str) -> None:
    """Strange values in every field give an error, or a true task."""
    strange: tuple[Any, ...] = (
        None,
        "",
        "1/0",
        -1,
        0,
        0.5,
        1e308,
        float("nan"),
        float("inf"),
        [],
        {"kind": []},
        True,
        2**70,
        1e-320,
    )
    refused = 0
    for path in paths_in(stored(kind)):
        for value in strange:
            content = stored(kind)
            place: Any = content
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
            content.pop("digest", None)
            try:
                Task.from_json(json.dumps({**content, "digest": content_digest(content)})).verify()
            except MetricShuffleError as wrong:
                refused += len(str(wrong)) > 20
    assert refused > 200


def paths_in(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every field of a JSON document; of a list the first element."""
    steps: list[Any] = (
        list(content)
        if isinstance(content, dict)
        else list(range(min(1, len(content))))
        if isinstance(content, list)
        else []
    )
    return [
        field
        for step in steps
        if step != "digest"
        for field in ((*path, step), *paths_in(content[step], (*path, step)))
    ]


# --- tasks that once passed ---


NUMBERS = ms.Sum(ms.Integers(0, 10))


def forged(task: ms.Task, **protocol: object) -> ms.Task:
    """The same task with other parameters of its protocol, and a digest that fits."""
    changed = task.protocol.model_copy(update=protocol)
    return ms.Task(
        query=task.query,
        protocol=changed,
        users=task.users,
        honest=task.honest,
        rounds=task.rounds,
        guarantee=task.guarantee,
        if_shuffler_colludes=task.if_shuffler_colludes,
    )


def test_more_steps_than_whole_numbers_are_refused_when_planning() -> None:
    """4e9 seconds in microseconds are 1.6e19 steps, which overflowed 64 bits.

    0.01 s became the whole range.
    """
    with pytest.raises(ms.InputError, match="choose a coarser granularity"):
        ms.plan(
            ms.Mean(ms.Interval(0.0, 4e9, "s")),
            ms.Target(1, 1e-6, 60.0),
            1000,
            granularity=1e-6,
            trusted="nobody",
        )


@check_all("gap", [5e-10, -5e-10, 1e-12 - 1.0])
def test_values_beside_whole_steps_are_not_certified(gap: float) -> None:
    """A linear target is checked at whole steps, so values between are rejected.

    Raw values passed before.
    """
    apart = 1.0 + gap
    channel = Channel(np.eye(2), distances=[[0.0, apart], [apart, 0.0]])
    protocol = ms.Frequencies(
        name="k-ary-randomized-response", trusted="shuffler", step=1.0 / apart, randomizer=channel
    )
    with pytest.raises((ms.NotCertified, ms.ConditionError, ms.InputError)):
        ms.Task.of(ms.Histogram(ms.Integers(0, 1)), protocol, ms.Target(0.01, 1e-9, 1.0), 100, 90)


def test_unary_messages_need_padding() -> None:
    """Without it a negative report wraps around to a legal count."""
    plan = ms.plan(
        NUMBERS, ms.Target(1, 1e-6, 2), 200, encoding="unary", protocols=["polya-shuffle"]
    )
    assert isinstance(plan.protocol, ms.Sums)
    bare = tuple(
        randomizer.model_copy(update={"padding": "none"})
        for randomizer in plan.protocol.randomizers
    )
    with pytest.raises(ms.NotCertified, match="no account covers"):
        forged(plan.task, randomizers=bare).verify()


@pytest.fixture(scope="module")
def vectors() -> ms.Task:
    people = ms.users_of(ms.Space(ms.Integers(0, 20)), items=4)
    return ms.plan(
        ms.UserHistogram(people),
        ms.Target(1, 1e-6, 2),
        100,
        trusted="curator",
        protocols=["tree-laplace"],
    ).task


def test_sums_of_vectors_are_no_residues(vectors: ms.Task) -> None:
    vectors.verify()
    with pytest.raises(ms.NotCertified, match=r"residues|added up"):
        forged(vectors, modulus=25).verify()


def test_cells_belong_to_their_noise(vectors: ms.Task) -> None:
    """Cells far finer than the noise overflow for some answers, which reveals them."""
    assert isinstance(vectors.protocol, ms.NoisyAnswers)
    noise = vectors.protocol.noise
    fine = AnswerNoise(noise.noise, noise.scale, noise.coordinates, cell=noise.scale * 2.0**-40)
    with pytest.raises(ms.NotCertified, match="cells of the noise"):
        forged(vectors, noise=fine).verify()


def test_a_single_report_with_a_delta_hides_one_person_only() -> None:
    """300 people who move by 1 each are not hidden by what hides one who moves by 300."""
    randomizer = {
        "kind": "additive",
        "span": 300,
        "shape": Fraction(1, 5),
        "rate": 1e-5,
        "padding": "none",
    }
    protocol = ms.Sums(
        name="geometric-local", trusted="nobody", randomizers=(randomizer,), modulus=10**9
    )
    account = protocol.account(ms.Sum(ms.Integers(0, 300)), ms.Target(3, 0.03, 300), 1, 1)
    assert account.delta > 0.0
    assert account.protects == "one person"


def test_a_file_holds_one_batch(tmp_path: Path) -> None:
    """Several batches under one id would pass the ledger; their difference is a report."""
    task = ms.plan(NUMBERS, ms.Target(1, 1e-6, 2), 50, protocols=["polya-shuffle"]).task
    batches = [task.randomize([5] * 25) for _ in range(2)]
    with pytest.raises(ms.PlanError, match="one batch"):
        write_reports(task, tmp_path / "both.bin", batches)
    assert list(tmp_path.iterdir()) == []
    assert write_reports(task, tmp_path / "parts.bin", task.randomized([[5] * 20, [4] * 30])) == 50


def test_nobody_counts_twice_in_a_tally() -> None:
    task = ms.plan(NUMBERS, ms.Target(1, 1e-6, 2), 50, protocols=["polya-shuffle"]).task
    tally = task.counted([[5] * 25])
    with pytest.raises(ms.InputError, match="with itself"):
        tally.merge(tally)


def test_rows_of_another_width_are_not_published(vectors: ms.Task) -> None:
    tally = vectors.counted([[[1, 2, 3, 4]] * 100])
    tally.sums = {key: [*row, 7] for key, row in tally.sums.items()}
    with pytest.raises(ms.PlanError, match="rows of"):
        vectors.publish(tally)


def test_units_are_those_of_the_values() -> None:
    people = ms.users_of(ms.Space(ms.Integers(0, 1000, "m"), unit="km"), items=3)
    task = ms.plan(
        ms.UserHistogram(people), ms.Target(1, 1e-6, 100), 50, protocols=["tree-laplace"]
    ).task
    with pytest.raises(ms.NotCertified, match="'km'"):
        task.verify()

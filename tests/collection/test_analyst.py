"""Analyst: output is fetched, checked, opened and counted once; faults are rejected."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import load_task, values_of
from tests.collection.issuers import issuer_terms, new_token
from tests.collection.running import run_aside
from tests.collection.stand_in import Output, StandIn, standing_in
from tests.tables import check_all
from tests.tasks.test_payloads import CARRIED
from tests.tasks.test_release_file import resigned

import metricshuffle as ms
from metricshuffle.collection.analyst.analyst import Analyst
from metricshuffle.collection.analyst.collector import InconsistentMessagesError
from metricshuffle.collection.analyst.download import Fetching, NotReleased
from metricshuffle.collection.client.report_builder import seal_reports
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.terms import Collection, canonical
from metricshuffle.errors import InputError, NotCertified, PlanError
from metricshuffle.report.plan_view import release_facts
from metricshuffle.tasks.collection_summary import guarantee_for_honest, is_promise_kept
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.task import Task

KIND = "sum in shares"


@pytest.fixture
def shuffler() -> Iterator[StandIn]:
    with standing_in() as stand_in:
        yield stand_in


@pytest.fixture
def key() -> AnalystKey:
    return AnalystKey.new()


@cache
def small_task(rounds: int = 1, users: int = 60, honest: int = 20) -> Task:
    target = ms.Target(epsilon=1, delta=1e-6, distance=5)
    query = ms.Sum(ms.Integers(0, 20))
    return ms.plan(
        query, target, users, honest, rounds=rounds, encoding="modular", protocols=["polya-shuffle"]
    ).task


def reported(shuffler: StandIn, collection: Collection, values: Sequence[Any]) -> list[bytes]:
    """Everybody's report has come, and what the shuffler lets go lies there."""
    inputs = collection.task.query.inputs(values, collection.task.protocol.step)
    made = seal_reports(collection, inputs, [bytes([0])] * inputs.people, [b""] * inputs.people)
    reports = [report.report for report in made]
    shuffler.received += reports
    shuffler.let_go(collection)
    return reports


def released(
    shuffler: StandIn,
    key: AnalystKey,
    values: Sequence[Any] = (3,) * 30,
    task: Task | None = None,
    **terms: Any,
) -> Collection:
    collection = shuffler.opened(task or small_task(), key, **terms)
    reported(shuffler, collection, values)
    return collection


def garbage(
    collection: Collection, payloads: Callable[[list[bytes]], list[bytes]] | None = None
) -> bytes:
    """Valid report with random bytes as boxes, or real boxes with payloads of another task."""
    sealing = collection.sealing
    if payloads is None:
        return sealing.closed(
            [secrets.token_bytes(sealing.inner_size) for _ in range(sealing.messages)],
            collection.keys[-1],
        )
    made = collection.form.split_messages(
        collection.task.randomize([values_of_one(collection.task)]).messages
    )[0]
    return sealing.report(payloads([part.tobytes() for part in made]), collection.keys)


def values_of_one(task: Task) -> Any:
    return "tea" if task.query.kind == "histogram" else 3


# What comes out


QUICK = (KIND, "labels", "vectors of labels")


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.thorough)
        for kind in CARRIED
        if not load_task(kind).protocol.adds_noise  # test_dummy_boxes.py: the shuffler adds some
    ],
)
def test_the_analyst_counts_what_people_sent(
    kind: str, shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    """Sums of the release are exactly those of the messages before sealing and mixing."""
    task = load_task(kind)
    collection = shuffler.opened(load_task(kind), key)
    people = task.honest + 2 if task.honest < task.users else task.users
    sent: list[Any] = []
    protocol = type(task.protocol)
    original = type(task.protocol).messages

    def spy(self: Any, inputs: Any, randomness: Any) -> Any:
        sent.append(original(self, inputs, randomness))
        return sent[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "messages", spy)
        reported(shuffler, collection, values_of(kind, people))
    release = Analyst(key).collect(collection, tmp_path / "release.json")
    assert release.shuffled.sums == task.protocol.counted(np.concatenate(sent))
    assert (release.reports, release.round, release.raw_values_seen, release.unsafe_seeded) == (
        people,
        1,
        False,
        False,
    )
    back = Release.load(tmp_path / "release.json")
    assert str(back) == str(release)
    assert back.collected == release.collected
    assert f"DELETE /v1/collections/{collection.digest}/release" in shuffler.asked
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "release.json",
        f"release.json.{collection.digest[:16]}.fetched",
    ]


def test_what_a_release_says(shuffler: StandIn, key: AnalystKey, tmp_path: Path) -> None:
    collection = released(shuffler, key, task=small_task(), colluders=5)
    shuffler.outputs[collection.digest].left_out = 2
    release = Analyst(key).collect(collection, tmp_path / "release.json")
    told = release.collected
    said = str(release)
    assert told is not None
    assert (
        told.digest,
        told.people,
        told.left_out,
        told.colluders,
        told.admission,
        told.apart,
    ) == (
        collection.digest,
        30,
        2,
        5,
        "open",
        True,
    )
    assert told.hops == (shuffler.url,)
    assert told.output == shuffler.outputs[collection.digest].etag
    for words in (
        f"Sealed reports of 30 people arrived through {shuffler.url}; collection "
        f"{collection.digest[:16]}. 2 more shared a message",
        "As it arrived (the 30 reports without 5 declared colluders): Hidden at epsilon 0.9",
        "at least 25 reports come from honest people",
        "Nobody checked that reports come from different people",
        "could have dropped all reports but one and added others",
        "a single one who lies can shift the answer by anything, unseen",
        "If the shuffler is honest: Hidden at epsilon 1,",
    ):
        assert words in said, said
    assert "Operator and analyst are the same" not in said


def test_one_person_in_both_roles_and_tickets_are_told(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    collection = released(shuffler, key, apart=False)
    release = Analyst(key).collect(collection, tmp_path / "release.json")
    assert "Operator and analyst are the same" in str(release)
    assert release.collected is not None
    worst_first = release.collected.sentences_worst_first(release.task)
    assert worst_first[0].startswith("Operator and analyst are the same")
    assert worst_first[-2].startswith("Sealed reports of ")  # neutral, as is the last one
    assert sorted(worst_first) == sorted(release.collected.sentences(release.task))
    assert release_facts(release).spoiled == tuple(worst_first)
    labels = load_task("labels")
    with_tickets = shuffler.opened(labels, key, tickets=[bytes(16)])
    inputs = labels.query.inputs(["tea"] * 300, 1.0)
    shuffler.received += [
        report.report
        for report in seal_reports(with_tickets, inputs, [b""] * 300, [bytes(16)] * 300)
    ]
    shuffler.let_go(with_tickets)
    said = str(Analyst(key).collect(with_tickets, tmp_path / "other.json"))
    assert "Every report spent a ticket" in said
    assert "Nobody checked" not in said
    assert "shift the answer" not in said


def test_tokens_and_who_gives_them_are_told(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    labels = load_task("labels")
    by_tokens = shuffler.opened(labels, key, **issuer_terms())
    inputs = labels.query.inputs(["tea"] * 300, 1.0)
    sealed = seal_reports(by_tokens, inputs, [b""] * 300, [new_token(by_tokens)] * 300)
    shuffler.received += [report.report for report in sealed]
    shuffler.let_go(by_tokens)
    said = str(Analyst(key).collect(by_tokens, tmp_path / "release.json"))
    assert "Every report spent a token; whoever gives tokens could have made any number" in said
    assert "Nobody checked" not in said


def test_asynchronous(shuffler: StandIn, key: AnalystKey, tmp_path: Path) -> None:
    collection = released(shuffler, key)

    async def collected() -> Release:
        return await Analyst(key).collect_async(collection, tmp_path / "release.json")

    assert run_aside(collected()).reports == 30


# What is certified


@check_all(("people", "colluders"), [(20, 0), (30, 0), (30, 5), (60, 0), (60, 40)])
def test_the_stated_guarantee_is_that_of_what_was_released_without_colluders(
    people: int, colluders: int
) -> None:
    """A function of their difference alone; certified, and not much less is."""
    task = small_task()
    honest = people - colluders
    told = guarantee_for_honest(task, honest)
    assert told is not None
    assert told.trust.honest_reports == honest
    assert is_promise_kept(task, told.epsilon, honest, 1)
    assert not is_promise_kept(task, told.epsilon * 0.99, honest, 1)
    assert told.epsilon <= task.guarantee.epsilon
    alike = (
        task.guarantee.distance,
        task.guarantee.delta,
        task.guarantee.shape,
        task.guarantee.protects,
    )
    assert (told.distance, told.delta, told.shape, told.protects) == alike


def test_more_honest_reports_hide_more_and_too_few_less() -> None:
    epsilons = [
        guarantee.epsilon
        for honest in (20, 25, 30, 60)
        if (guarantee := guarantee_for_honest(small_task(), honest)) is not None
    ]
    assert epsilons == sorted(epsilons, reverse=True)
    assert len(set(epsilons)) == 4
    fewer = guarantee_for_honest(small_task(), 15)
    assert fewer is None or fewer.epsilon > 1.0
    assert guarantee_for_honest(small_task(), 0) is None


def test_of_several_rounds_it_is_this_one_by_itself(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    """The others may have had fewer people: nothing is said of them."""
    task = small_task(rounds=2)
    collection = released(shuffler, key, task=task, round=2)
    release = Analyst(key).collect(collection, tmp_path / "release.json")
    assert release.round == 2
    assert release.collected is not None
    told = release.collected.guarantee_as_arrived
    assert told is not None
    assert told.rounds == 1
    assert told.epsilon < task.guarantee.epsilon
    assert is_promise_kept(task, told.epsilon, 30, 1)
    assert "this round by itself" in str(release)


def test_where_nobody_is_trusted_it_is_the_promise_itself(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    collection = released(shuffler, key, values_of("local sum", 35), task=load_task("local sum"))
    release = Analyst(key).collect(collection, tmp_path / "release.json")
    assert release.collected is not None
    assert release.collected.guarantee_as_arrived == release.guarantee
    assert "As it arrived" not in str(release)


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a smaller epsilon": (
        lambda told: told["guarantee_as_arrived"].update(epsilon=0.5),
        "more for the reports that arrived than is certified",
    ),
    "no colluders": (lambda told: told.update(colluders=0), "is about something else"),
    "more people": (
        lambda told: told.update(people=60),
        "60 people arrived, and 30 are in the answer",
    ),
    "more honest": (
        lambda told: told["guarantee_as_arrived"]["trust"].update(honest_reports=30),
        "is about something else",
    ),
    "another distance": (
        lambda told: told["guarantee_as_arrived"].update(distance=50),
        "is about something else",
    ),
    "another delta": (
        lambda told: told["guarantee_as_arrived"].update(delta=1e-9),
        "is about something else",
    ),
    "another rounds": (
        lambda told: told["guarantee_as_arrived"].update(rounds=9),
        "is about something else",
    ),
    "a strange address": (lambda told: told.update(hops=["http://x\x1b[2J"]), "cannot be read"),
    "no digest": (lambda told: told.update(digest="x"), "cannot be read"),
    "something more": (lambda told: told.update(audited=True), "cannot be read"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_release_cannot_say_more_than_is_certified(
    edit: str, shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    """Also if it is signed anew: what it says of the reports that arrived is computed again."""
    collection = released(shuffler, key, colluders=5)
    document = json.loads(Analyst(key).collect(collection, tmp_path / "release.json").to_json())
    change, words = EDITS[edit]
    change(document["collected"])
    with pytest.raises(PlanError, match="checksum"):
        Release.from_json(json.dumps(document))
    with pytest.raises(PlanError, match=words):
        Release.from_json(resigned(document))


def test_releases_without_a_collection_are_what_they_were() -> None:
    release = ms.Task.run(load_task(KIND), values_of(KIND))
    assert "collected" not in json.loads(release.to_json())
    assert Release.from_json(release.to_json()).collected is None


# What is refused


def test_collecting_before_the_release_is_refused(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    collection = shuffler.opened(small_task(), key)
    with pytest.raises(
        NotReleased, match=r"not released yet: it closes at .* and then needs 20 reports"
    ):
        Analyst(key).collect(collection, tmp_path / "release.json")
    assert list(tmp_path.iterdir()) == []


def test_aborted(shuffler: StandIn, key: AnalystKey, tmp_path: Path) -> None:
    collection = released(shuffler, key)
    shuffler.release_status = 410
    with pytest.raises(
        NotReleased,
        match=r"nothing to collect any more .* It says: this collection was aborted: too few",
    ):
        Analyst(key).collect(collection, tmp_path / "release.json")


def test_somebody_elses_key(shuffler: StandIn, key: AnalystKey, tmp_path: Path) -> None:
    collection = released(shuffler, key)
    other = AnalystKey.new()
    with pytest.raises(InputError, match="this key is not the one that the messages of collection"):
        Analyst(other).collect(collection, tmp_path / "release.json")
    assert shuffler.asked == []
    with pytest.raises(NotReleased, match="does not accept this key"):
        run_aside(Fetching(collection, other.token).fetched(tmp_path / "boxes"))
    other.save(tmp_path / "key")
    assert Analyst(tmp_path / "key").public == other.public
    for wrong, words in ((tmp_path / "no key", "cannot read"), (tmp_path, "cannot read")):
        with pytest.raises(InputError, match=words):
            Analyst(wrong)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputError, match="is not an analyst's key"):
        Analyst(tmp_path / "text")


def cut(output: Output, collection: Collection) -> None:
    output.body = output.body[:-1]


def cut_and_announced(output: Output, collection: Collection) -> None:
    output.body = output.body[: -collection.sealing.box_size()]
    output.__init__(output.body, output.people)  # type: ignore[misc]


def longer(output: Output, collection: Collection) -> None:
    output.__init__(output.body + output.body[: collection.sealing.box_size()], output.people)  # type: ignore[misc]


def other_bytes(output: Output, collection: Collection) -> None:
    output.body = bytes([output.body[0] ^ 1]) + output.body[1:]


def other_order(output: Output, collection: Collection) -> None:
    size = collection.sealing.box_size()
    output.__init__(output.body[size:] + output.body[:size], output.people)  # type: ignore[misc]


def twice(output: Output, collection: Collection) -> None:
    size = collection.sealing.box_size()
    output.__init__(output.body[:size] + output.body[:-size], output.people)  # type: ignore[misc]


def fewer_people(output: Output, collection: Collection) -> None:
    output.people -= 1


def too_few(output: Output, collection: Collection) -> None:
    size = collection.sealing.box_size() * collection.terms.messages
    output.__init__(output.body[: 19 * size], 19)  # type: ignore[misc]


def too_many(output: Output, collection: Collection) -> None:
    output.people = 61


def no_digest(output: Output, collection: Collection) -> None:
    output.etag = "something"


WRONG = {
    cut: "and sent fewer",
    cut_and_announced: "and sent fewer",
    longer: "and sent more",
    other_bytes: "the digests differ",
    other_order: "not sorted, or contains a message twice",
    twice: "not sorted, or contains a message twice",
    fewer_people: "and sent more",
    too_few: "19 people, but this collection requires at least 20",
    too_many: "more than the 60",
    no_digest: "does not say how many people",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_another_output_than_was_promised_is_refused(
    wrong: Any, shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    collection = released(shuffler, key)
    wrong(shuffler.outputs[collection.digest], collection)
    budget = ms.Budget(tmp_path / "plan.ledger")
    with pytest.raises(PlanError, match=WRONG[wrong]):
        Analyst(key).collect(collection, tmp_path / "release.json", budget=budget)
    assert not (tmp_path / "release.json").exists()
    assert not any(path.startswith("DELETE") for path in shuffler.asked)
    assert budget.releases == ()


def test_a_garbage_box_refuses_the_sum_and_spends_the_round(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    """It is counted once; nothing is written or acknowledged, and no later call succeeds."""
    collection = released(shuffler, key)
    shuffler.received.append(garbage(collection))
    shuffler.let_go(collection)
    budget = ms.Budget(tmp_path / "plan.ledger")
    each = collection.terms.messages
    for _ in range(2):
        with pytest.raises(
            InconsistentMessagesError,
            match=f"{each} of {31 * each} messages cannot be opened .* the round is spent",
        ) as refusal:
            Analyst(key).collect(collection, tmp_path / "release.json", budget=budget)
        assert "a random number" in str(refusal.value)
        (noted,) = budget.releases
        assert (noted.round, noted.reports, noted.task) == (1, 31, collection.task.digest)
    assert not (tmp_path / "release.json").exists()
    assert not any(path.startswith("DELETE") for path in shuffler.asked)
    other = released(shuffler, key)
    with pytest.raises(InputError, match="round 1 was released"):
        Analyst(key).collect(other, tmp_path / "other.json", budget=budget)


def too_large(payloads: list[bytes]) -> list[bytes]:
    return [*payloads[:-1], payloads[-1][:1] + (2**62 - 1).to_bytes(8, "little")]


def another_pile(payloads: list[bytes]) -> list[bytes]:
    return [b"\x05" + payloads[0][1:], *payloads[1:]]


@pytest.mark.parametrize("change", [too_large, another_pile])
def test_a_payload_out_of_range_refuses_the_sum(
    change: Any, shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    collection = released(shuffler, key)
    shuffler.received.append(garbage(collection, change))
    shuffler.let_go(collection)
    with pytest.raises(
        InconsistentMessagesError, match=r"are not complete reports .* the round is spent"
    ):
        Analyst(key).collect(collection, tmp_path / "release.json")


def test_single_messages_that_cannot_be_read_are_told_and_left_out(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    """Unreadable messages are left out and counted among the declared colluders.

    People who follow the protocol do not send any.
    """
    task = load_task("labels")
    collection = released(shuffler, key, values_of("labels", 320), task=task, colluders=10)
    shuffler.received += [
        garbage(collection),
        garbage(collection, lambda p: [b"\0\x07"]),
        garbage(collection, lambda p: [b"\x01\0"]),
    ]
    shuffler.let_go(collection)
    release = Analyst(key).collect(collection, tmp_path / "release.json")
    told = release.collected
    assert told is not None
    assert (release.reports, told.people, told.unreadable, told.honest) == (320, 323, 3, 313)
    assert told.guarantee_as_arrived is not None
    assert told.guarantee_as_arrived.trust.honest_reports == 313
    assert (
        "3 of them could not be read; they count among the colluders and are not in the answer"
        in str(release)
    )
    assert Release.load(tmp_path / "release.json").collected == told


def test_more_unreadable_messages_than_declared_colluders_give_no_answer(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    task = load_task("labels")
    collection = released(
        shuffler, key, values_of("labels", task.honest - 1), task=task, colluders=1
    )
    shuffler.received += [garbage(collection), garbage(collection)]
    shuffler.let_go(collection)
    budget = ms.Budget(tmp_path / "plan.ledger")
    with pytest.raises(
        InconsistentMessagesError,
        match=r"2 of .* cannot be read.* more than the 1 declared colluders.* the round is spent",
    ):
        Analyst(key).collect(collection, tmp_path / "release.json", budget=budget)
    assert len(budget.releases) == 1


def test_a_collection_that_claims_more_than_is_true_is_not_collected(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    collection = released(shuffler, key)
    claimed = collection.task.guarantee.model_copy(update={"epsilon": 0.01})
    forged = collection.task.model_copy(update={"guarantee": claimed, "digest": ""})
    terms = {
        **collection.terms.model_dump(mode="json"),
        "task": type(forged).model_validate(forged.model_dump()).to_json(),
    }
    with pytest.raises(NotCertified, match="claims more than is true"):
        Analyst(key).collect(Collection(canonical(terms)), tmp_path / "release.json")
    assert not (tmp_path / "release.json").exists()


# Counted


def test_the_ledger_counts_it_once(shuffler: StandIn, key: AnalystKey, tmp_path: Path) -> None:
    collection = released(shuffler, key)
    budget = ms.Budget(tmp_path / "plan.ledger")
    for _ in range(2):
        Analyst(key).collect(collection, tmp_path / "release.json", budget=budget)
        (noted,) = budget.releases
        assert (noted.reports, noted.raw_values_seen, noted.batches) == (30, False, 1)
        assert noted.batch_ids == collection.digest[:32]
    other = released(shuffler, key)
    with pytest.raises(InputError, match="round 1 was released"):
        Analyst(key).collect(other, tmp_path / "other.json", budget=budget)
    assert not (tmp_path / "other.json").exists()
    assert not any(
        path == f"DELETE /v1/collections/{other.digest}/release" for path in shuffler.asked
    )


# Splits


def test_the_parts_of_a_split_are_one_estimate(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    """Each part was released with enough people; the smallest one determines the guarantee."""
    parts = [
        released(shuffler, key, [3] * people, split=(part, 2), colluders=1)
        for part, people in ((1, 25), (2, 32))
    ]
    budget = ms.Budget(tmp_path / "plan.ledger")
    release = Analyst(key).collect(parts, tmp_path / "release.json", budget=budget)
    told = release.collected
    assert told is not None
    assert (release.reports, told.people, told.honest) == (57, 57, 24)
    assert [part.people for part in told.parts] == [25, 32]
    assert told.guarantee_as_arrived == guarantee_for_honest(small_task(), 24)
    alone = [Analyst(key).collect(part, tmp_path / f"{part.digest[:8]}.json") for part in parts]
    modulus = small_task().protocol.modulus
    assert modulus is not None
    assert release.shuffled.numbers == [sum(part.shuffled.numbers[0] for part in alone) % modulus]
    assert "in 2 parts, each of which was released by itself" in str(release)
    assert str(Release.load(tmp_path / "release.json")) == str(release)
    assert len([path for path in shuffler.asked if path.startswith("DELETE")]) == 4
    with pytest.raises(
        PlanError, match="1 of the 1 batches of reports in this one were in the release of round 1"
    ):
        Analyst(key).collect(parts[0], tmp_path / "again.json", budget=budget)
    document = json.loads(release.to_json())
    document["collected"]["parts"][0]["people"] = 26
    with pytest.raises(PlanError, match="do not add up"):
        Release.from_json(resigned(document))


def test_wrong_splits_are_refused(shuffler: StandIn, key: AnalystKey, tmp_path: Path) -> None:
    first = released(shuffler, key, split=(1, 2))
    for other in (
        released(shuffler, key, split=(1, 2)),
        released(shuffler, key),
        released(shuffler, key, split=(2, 2), colluders=3),
    ):
        with pytest.raises(InputError, match="not parts of one split"):
            Analyst(key).collect([first, other], tmp_path / "release.json")
    large = [released(shuffler, key, [1] * 40, split=(part, 2)) for part in (1, 2)]
    with pytest.raises(PlanError, match="80 people in all parts are more than the 60"):
        Analyst(key).collect(large, tmp_path / "release.json")


def test_a_spoiled_part_spoils_itself_only(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    parts = [released(shuffler, key, [3] * 25, split=(part, 2)) for part in (1, 2)]
    shuffler.received.append(garbage(parts[0]))
    shuffler.let_go(parts[0])
    budget = ms.Budget(tmp_path / "plan.ledger")
    release = Analyst(key).collect(parts, tmp_path / "release.json", budget=budget)
    assert release.collected is not None
    assert (release.reports, release.collected.spoiled) == (25, (parts[0].digest,))
    assert "1 more part of the split gave no answer" in str(release)
    (noted,) = budget.releases
    assert noted.batches == 2
    assert str(Release.load(tmp_path / "release.json")) == str(release)

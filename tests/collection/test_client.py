"""Client: report stored before sending, identical retries, one report per person, messages."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import load_task
from tests.collection.stand_in import HANG_UP, StandIn, standing_in

import metricshuffle as ms
from metricshuffle.collection.client.batch_submission import RESUMED_MESSAGE, random_delay
from metricshuffle.collection.client.client import Client
from metricshuffle.collection.client.http_client import (
    NotStored,
    interpret_status,
    parse_collection_address,
)
from metricshuffle.collection.client.report_builder import draw_collection
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.collection.terms import Collection, canonical, parse_time
from metricshuffle.errors import InputError, NotCertified, PlanError
from metricshuffle.tasks.task import Task

KIND = "sum in shares"


@pytest.fixture
def shuffler() -> Iterator[StandIn]:
    with standing_in() as stand_in:
        yield stand_in


@pytest.fixture
def analyst() -> AnalystKey:
    return AnalystKey.new()


@cache
def two_rounds() -> Task:
    target = ms.Target(epsilon=1, delta=1e-6, distance=5)
    return ms.plan(
        ms.Sum(ms.Integers(0, 20)),
        target,
        40,
        30,
        rounds=2,
        encoding="modular",
        protocols=["polya-shuffle"],
    ).task


def client_of(collection: Any, folder: Path, **settings: Any) -> Client:
    return Client(collection, folder / "out.box", **{"patience": 20.0, **settings})


def payloads(
    shuffler: StandIn, collection: Collection, analyst: AnalystKey, report: bytes
) -> list[bytes]:
    return [
        collection.sealing.open_box(box, analyst.private)
        for box in shuffler.boxes(collection, report)[1]
    ]


# One report


def test_a_report_is_what_the_analyst_can_add_up(
    shuffler: StandIn, analyst: AnalystKey, tmp_path: Path
) -> None:
    collection = shuffler.opened(load_task(KIND), analyst)
    with client_of(collection, tmp_path) as client:
        reports = [client.report(7) for _ in range(3)]
    assert len(set(reports)) == 3
    for report in reports:
        assert len(report) == collection.sealing.report_size
        opened = payloads(shuffler, collection, analyst, report)
        assert opened == sorted(opened)
        sums = collection.task.protocol.counted(
            collection.form.join_messages(
                np.frombuffer(b"".join(opened), dtype=np.uint8).reshape(-1, collection.form.size), 1
            )
        )
        assert 0 <= sums[0][0] < (collection.task.protocol.modulus or 0)


def test_it_is_written_down_before_it_is_sent(shuffler: StandIn, tmp_path: Path) -> None:
    """When the bytes arrive they are already in the file, readable by other processes."""
    collection = shuffler.opened(load_task(KIND))
    written: list[bytes] = []

    def look(report: bytes) -> None:
        connection = sqlite3.connect(tmp_path / "out.box")
        written.extend(
            bytes(row[0])
            for row in connection.execute("SELECT report FROM reports WHERE state = 'sending'")
        )
        connection.close()

    shuffler.on_post = look
    with client_of(collection, tmp_path) as client:
        assert client.submit(7, user="ann").status == "stored"
    assert written == shuffler.received
    assert len(written) == 1


def test_a_retry_sends_the_same_bytes(shuffler: StandIn, tmp_path: Path) -> None:
    """Failing, busy or closing server: every attempt has the same bytes, stored once."""
    collection = shuffler.opened(load_task(KIND))
    shuffler.script = [503, 429, HANG_UP]
    with client_of(collection, tmp_path) as client:
        answer = client.submit(7)
    assert answer.status == "stored"
    assert len(shuffler.received) == 4
    assert len(set(shuffler.received)) == 1


def test_the_same_person_is_not_sent_again(shuffler: StandIn, tmp_path: Path) -> None:
    """Whatever the value, nothing is sent; the message says who reported, and when."""
    collection = shuffler.opened(load_task(KIND))
    with client_of(collection, tmp_path) as client:
        assert client.submit(7, user="ann").sentence == "The report is stored."
        for value in (9, 7):
            with pytest.raises(
                NotStored,
                match=(
                    r"^Nothing was sent now\. A report was stored before, on 20\d\d-.*Z\..*the "
                    r"user 'ann'.*user="
                ),
            ) as told:
                client.submit(value, user="ann")
            assert (told.value.answer.status, told.value.answer.before) == ("stored", True)
        client.submit(7, user="ben")
        client.submit(3)
        with pytest.raises(
            NotStored,
            match=r"out\.box that was the person who uses it without user; each person reports",
        ):
            client.submit(4)
    with (
        client_of(collection, tmp_path) as client,
        pytest.raises(NotStored, match="Nothing was sent now"),
    ):
        client.submit(1, user="ben")
    assert len(shuffler.received) == 3


def test_what_could_not_be_sent_is_sent_the_next_time_with_the_same_bytes(
    shuffler: StandIn, tmp_path: Path
) -> None:
    collection = shuffler.opened(load_task(KIND))
    shuffler.script = [503] * 40
    with (
        client_of(collection, tmp_path, patience=0.3) as client,
        pytest.raises(NotStored, match="cannot take the report now") as refusal,
    ):
        client.submit(7)
    assert refusal.value.answer.status == "waiting"
    before = len(shuffler.received)
    shuffler.script = []
    with client_of(collection, tmp_path) as client:
        answer = client.submit(20)
    assert (answer.status, answer.sentence) == ("stored", RESUMED_MESSAGE)
    assert len(shuffler.received) == before + 1
    assert len(set(shuffler.received)) == 1
    with client_of(collection, tmp_path) as client:
        assert client.resend().people == 0


def test_resend_needs_no_value(shuffler: StandIn, tmp_path: Path) -> None:
    collection = shuffler.opened(load_task(KIND))
    shuffler.script = [404]
    with client_of(collection, tmp_path) as client:
        with pytest.raises(NotStored, match="does not know this collection"):
            client.submit(7)
        done = client.resend()
        assert (done.people, done.stored, done.complete) == (1, 1, True)
    assert len(set(shuffler.received)) == 1


def test_nobody_there(tmp_path: Path) -> None:
    with standing_in() as gone:
        collection = gone.opened(load_task(KIND))
    with (
        client_of(collection, tmp_path, patience=0.5) as client,
        pytest.raises(NotStored, match="cannot be reached"),
    ):
        client.submit(7)


ANSWERS = {
    410: ("late", "it is not known whether this report was in time"),
    403: ("refused", "does not know this ticket"),
    409: ("refused", "spent on another report"),
    422: ("refused", "cannot open this report"),
    413: ("refused", "cannot open this report"),
    404: ("waiting", "does not know this collection"),
    200: ("waiting", "unexpected status 200"),
    307: ("waiting", "unexpected status 307"),
    402: ("waiting", "unexpected status 402"),
}


@pytest.mark.parametrize("code", ANSWERS)
def test_answers_in_words(shuffler: StandIn, tmp_path: Path, code: int) -> None:
    """Only 204 means stored, unlike a captive portal's answer. Redirects are not followed."""
    status, words = ANSWERS[code]
    collection = shuffler.opened(
        load_task(KIND),
        opens="2020-01-01T00:00:00Z",
        closes="2020-01-02T00:00:00Z",
        extends="2020-01-02T00:00:00Z",
    )
    shuffler.script = [code]
    with (
        client_of(collection, tmp_path) as client,
        pytest.raises(NotStored, match=words) as refusal,
    ):
        client.submit(7)
    assert refusal.value.answer.status == status
    assert len(shuffler.received) == 1


def test_after_the_end_nothing_is_sent_again(shuffler: StandIn, tmp_path: Path) -> None:
    collection = shuffler.opened(
        load_task(KIND),
        opens="2020-01-01T00:00:00Z",
        closes="2020-01-02T00:00:00Z",
        extends="2020-01-02T00:00:00Z",
    )
    shuffler.script = [410]
    for _ in range(2):
        with client_of(collection, tmp_path) as client:
            with pytest.raises(
                NotStored, match="not known whether this report was in time"
            ) as told:
                client.submit(7)
            assert told.value.answer.status == "late"
    assert len(shuffler.received) == 1


def test_closed_too_early_is_tried_again(shuffler: StandIn, tmp_path: Path) -> None:
    """410 before the closing time may be a wrong clock: reported, and the report is kept."""
    collection = shuffler.opened(load_task(KIND))
    closes = parse_time(collection.terms.closes)
    assert interpret_status("https://hop.example", closes, 410, "").status == "waiting"
    shuffler.script = [410]
    with client_of(collection, tmp_path) as client:
        with pytest.raises(NotStored, match="not known whether this report was in time"):
            client.submit(7)
        assert client.submit(7).status == "stored"


def test_what_a_server_says_is_printed_only_if_it_can_be() -> None:
    result = interpret_status("https://hop.example", 0, 503, "as a test wants it.")
    assert "It says: as a test" in result.sentence


# Which collection


def test_another_collection_of_the_same_round_is_refused(shuffler: StandIn, tmp_path: Path) -> None:
    """For the same person only; nothing reaches the second shuffler."""
    first, second, later = (shuffler.opened(two_rounds(), round=round) for round in (1, 1, 2))
    with client_of(first, tmp_path) as client:
        client.submit(7, user="ann")
    with client_of(second, tmp_path) as client:
        with pytest.raises(
            PlanError, match="reported to another collection of the same task and round"
        ):
            client.submit(7, user="ann")
        assert shuffler.reports(second) == []
        client.submit(7, user="ben")
        with pytest.raises(PlanError, match="this person has reported"):
            client.submit_many({"v": [1, 2], "who": ["cat", "ann"]}, column="v", user_column="who")
    with client_of(later, tmp_path) as client:
        client.submit(7, user="ann")
    assert [len(shuffler.reports(collection)) for collection in (first, second, later)] == [1, 1, 1]


def test_a_report_does_not_open_in_another_collection(shuffler: StandIn, tmp_path: Path) -> None:
    """Even of the same task and keys: the digest of the collection is bound into every box."""
    first = shuffler.opened(load_task(KIND))
    terms = json.loads(first.served)
    second = Collection(canonical({**terms, "id": "0" * 32}))
    shuffler.hops[second.digest] = second, shuffler.hops[first.digest][1]
    with client_of(first, tmp_path) as client:
        report = client.report(7)
    shuffler.boxes(first, report)
    with pytest.raises(NotOpened):
        shuffler.boxes(second, report)


@pytest.mark.thorough
def test_bytes_that_were_served_must_have_the_digest_that_was_pinned(
    shuffler: StandIn, tmp_path: Path
) -> None:
    collection = shuffler.opened(load_task(KIND))
    for address in (collection.url, f"{shuffler.url}/join/{collection.digest}"):
        with client_of(address, tmp_path / "") as client:
            assert client.collections[0].served == collection.served
    with client_of(shuffler.url, tmp_path, digest=collection.digest) as client:
        assert client.collections[0].digest == collection.digest
    other = shuffler.opened(load_task(KIND))
    shuffler.served[collection.digest] = other.served
    for address, pinned in (
        (collection.url, None),
        (shuffler.url, collection.digest),
        (other.url, collection.digest),
    ):
        with (
            client_of(address, tmp_path, digest=pinned) as client,
            pytest.raises(PlanError, match="the digests differ"),
        ):
            client.submit(7)
    shuffler.served[collection.digest] = collection.served.replace(
        b'"colluders":0', b'"colluders":1'
    )
    with (
        client_of(collection.url, tmp_path) as client,
        pytest.raises(PlanError, match="the digests differ"),
    ):
        client.submit(7)
    shuffler.served[collection.digest] = b"x" * (5 * 2**20)
    with (
        client_of(collection.url, tmp_path) as client,
        pytest.raises(PlanError, match="which is no collection"),
    ):
        client.submit(7)
    collection.save(tmp_path / "collection.json")
    with (
        client_of(tmp_path / "collection.json", tmp_path, digest=other.digest) as client,
        pytest.raises(PlanError, match="digests diff"),
    ):
        client.submit(7)
    assert shuffler.received == []


def test_an_address_needs_a_digest() -> None:
    digest = "0a" * 32
    assert parse_collection_address(f"https://x.example/{digest}", digest)[1] == digest
    for address in ("https://x.example", "https://x.example/v1/collections/abc", "ftp://x.example"):
        with pytest.raises(PlanError, match="digest"):
            parse_collection_address(address, None)


@pytest.mark.thorough
def test_a_collection_that_promises_too_much_is_refused_before_anything_is_made(
    shuffler: StandIn, tmp_path: Path
) -> None:
    """A task whose epsilon was lowered, and signed anew; and a recipe that is not the task's."""
    honest = shuffler.opened(load_task(KIND))
    content = json.loads(honest.task.to_json())
    content["guarantee"]["epsilon"] = 0.5
    lying = Task.model_validate(
        {name: value for name, value in content.items() if name != "digest"}
    )
    shuffler.served.clear()
    collection = shuffler.opened(lying)
    with (
        client_of(collection, tmp_path) as client,
        pytest.raises(NotCertified, match="claims more than is true"),
    ):
        client.submit(7)
    terms = json.loads(honest.served)
    recipe = Collection(
        canonical({**terms, "recipe": {**terms["recipe"], "protocol": "something else"}})
    )
    with client_of(recipe, tmp_path) as client, pytest.raises(NotCertified, match="recipe"):
        client.report(7)
    few = Collection(canonical({**terms, "minimum": terms["minimum"] - 1}))
    with (
        client_of(few, tmp_path, believe=True) as client,
        pytest.raises(PlanError, match="do not take part"),
    ):
        client.submit(7)
    assert shuffler.received == []
    with client_of(collection, tmp_path, believe=True) as client:
        client.submit(7)
    assert len(shuffler.received) == 1


def test_without_an_outbox_nothing_is_sent(shuffler: StandIn, tmp_path: Path) -> None:
    collection = shuffler.opened(load_task(KIND))
    with pytest.raises(InputError, match="outbox="):
        Client(collection).submit(7)
    collection.save(tmp_path / "collection.json")
    with Client(tmp_path / "collection.json") as client:
        client.submit(7)
    assert (tmp_path / "submissions.outbox").exists()
    assert len(shuffler.received) == 1


@pytest.mark.parametrize("value", [21, -1, 1.5, "7", None, float("nan")])
def test_a_wrong_value_is_refused_before_anything_is_made(
    shuffler: StandIn, tmp_path: Path, value: Any
) -> None:
    collection = shuffler.opened(load_task(KIND))
    with client_of(collection, tmp_path) as client, pytest.raises(InputError):
        client.submit(value)
    with client_of(collection, tmp_path) as client:
        assert client.resend().people == 0
    assert shuffler.received == []


# Splits


@pytest.mark.thorough
def test_everybody_draws_one_part_once(shuffler: StandIn, tmp_path: Path) -> None:
    parts = [shuffler.opened(load_task(KIND), split=(part, 3)) for part in (1, 2, 3)]
    users = [f"user {number}" for number in range(60)]
    with client_of(parts, tmp_path) as client:
        assert client.submit_many(
            {"v": [1] * 60, "who": users}, column="v", user_column="who"
        ).complete
    counts = [len(shuffler.reports(part)) for part in parts]
    assert sum(counts) == len(shuffler.received) == 60
    assert min(counts) >= 5  # 3e-6 is the chance that one of them gets fewer
    with client_of(parts[::-1], tmp_path) as client:
        done = client.submit_many({"v": [1] * 60, "who": users}, column="v", user_column="who")
        assert (done.stored, done.already) == (60, 60)
    assert len(shuffler.received) == 60
    for wrong, words in (
        (parts[:2], "this split has 3 parts, and 2 are given"),
        ([parts[0], parts[0], parts[1]], "not the parts of one split"),
        ([*parts[:2], shuffler.opened(load_task(KIND))], "not the parts of one split"),
    ):
        with client_of(wrong, tmp_path) as client, pytest.raises(PlanError, match=words):
            client.submit(7)


def test_a_draw_is_even() -> None:
    drawn_parts = [draw_collection([0, 1, 2]) for _ in range(3000)]  # type: ignore[list-item]
    assert all(850 < drawn_parts.count(part) < 1150 for part in (0, 1, 2))  # type: ignore[arg-type]


@pytest.mark.thorough
def test_a_waiting_report_keeps_the_part_it_drew(shuffler: StandIn, tmp_path: Path) -> None:
    parts = [shuffler.opened(load_task(KIND), split=(part, 2)) for part in (1, 2)]
    for person in range(8):
        shuffler.script = [503] * 9
        with client_of(parts, tmp_path, patience=0.0) as client, pytest.raises(NotStored):
            client.submit(7, user=str(person))
        before = len(shuffler.received)
        shuffler.script = []
        with client_of(parts, tmp_path) as client:
            client.submit(7, user=str(person))
        assert shuffler.received[-1] == shuffler.received[before - 1]
    assert sum(len(shuffler.reports(part)) for part in parts) == 8


# Tickets


def test_a_mistyped_ticket_is_replaced_without_randomizing_again(
    shuffler: StandIn, tmp_path: Path
) -> None:
    good = bytes(range(16))
    collection = shuffler.opened(load_task(KIND), tickets=[good])
    with client_of(collection, tmp_path) as client:
        with pytest.raises(InputError, match="needs tickets"):
            client.submit(7)
        with pytest.raises(InputError, match="32 hexadecimal digits"):
            client.submit(7, ticket="not a ticket")
        with pytest.raises(NotStored, match="does not know this ticket"):
            client.submit(7, ticket="00" * 16)
        assert client.submit(7, ticket=good.hex()).status == "stored"
    (wrong, first), (right, second) = (
        shuffler.boxes(collection, report) for report in shuffler.received
    )
    assert (wrong, right) == (bytes(16), good)
    assert first == second
    assert (len(shuffler.received), shuffler.received[0] == shuffler.received[1]) == (2, False)
    open_one = shuffler.opened(load_task(KIND))
    with (
        client_of(open_one, tmp_path) as client,
        pytest.raises(InputError, match="without tickets"),
    ):
        client.submit(7, ticket=good.hex())


@pytest.mark.thorough
def test_tickets_of_a_file_are_handed_out_in_order_and_again_after_an_interruption(
    shuffler: StandIn, tmp_path: Path
) -> None:
    tickets = [bytes([number]) * 16 for number in range(12)]
    collection = shuffler.opened(load_task(KIND), tickets=tickets)
    with client_of(collection, tmp_path, patience=0.0) as client:
        with pytest.raises(InputError, match="20 more people need a ticket, and of the 12"):
            client.submit_many([1] * 20, tickets=[ticket.hex() for ticket in tickets])
        assert shuffler.received == []
        shuffler.script = [204] * 4 + [503] * 40
        done = client.submit_many([1] * 10, tickets=tickets, concurrency=1)
        assert (done.stored, done.waiting) == (4, 6)
        shuffler.script = []
        done = client.submit_many([1] * 10, tickets=tickets)
        assert (done.stored, done.already, done.complete) == (10, 4, True)
    spent = {shuffler.boxes(collection, report)[0] for report in shuffler.received}
    assert spent == set(tickets[:10])
    assert len(set(shuffler.received)) == 10


def test_tickets_belong_to_one_part(shuffler: StandIn, tmp_path: Path) -> None:
    parts = [
        shuffler.opened(load_task(KIND), split=(part, 2), tickets=[bytes(16)]) for part in (1, 2)
    ]
    with (
        client_of(parts, tmp_path) as client,
        pytest.raises(PlanError, match="a ticket is for one part"),
    ):
        client.submit(7, ticket="00" * 16)
    with client_of(parts[1], tmp_path) as client:
        assert client.submit(7, ticket="00" * 16).status == "stored"


# When


def test_everybody_waits_a_random_part_of_the_delay(shuffler: StandIn) -> None:
    collection = shuffler.opened(load_task(KIND), delay=100)
    moments = sorted(random_delay(collection) for _ in range(400))
    assert 0.0 <= moments[0] < 10.0
    assert 90.0 < moments[-1] < 100.0
    assert 35.0 < moments[200] < 65.0
    soon = shuffler.opened(load_task(KIND), delay=100, lasts=10)
    assert max(random_delay(soon) for _ in range(400)) <= 9.1
    assert random_delay(shuffler.opened(load_task(KIND))) == 0.0


@pytest.mark.thorough
def test_reports_are_sent_when_their_moment_has_come(shuffler: StandIn, tmp_path: Path) -> None:
    """All are stored first, then sent in the order of their times, not of the values."""
    collection = shuffler.opened(load_task(KIND), delay=1)
    arrived = []
    shuffler.on_post = lambda report: arrived.append(time.monotonic())
    begun = time.monotonic()
    with client_of(collection, tmp_path) as client:
        assert client.submit_many([1] * 30, concurrency=2).complete
    after = [moment - begun for moment in arrived]
    assert after == sorted(after)
    assert (
        after[-1] - after[0] > 0.5
    )  # 30 moments in one second: 1e-7 is the chance that all lie within half of it

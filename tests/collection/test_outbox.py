"""Outbox: one entry per person, no names or acknowledged reports, tickets handed out once."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metricshuffle.collection.client.outbox import Outbox, SealedReport, SettledReport
from metricshuffle.errors import InputError

TASK = "task"
ROUND = 1
HERE = "a" * 64
THERE = "b" * 64


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    outbox = Outbox(tmp_path / "out.box")
    yield outbox
    outbox.close()


def test_the_first_report_stays(outbox: Outbox) -> None:
    who = outbox.user("ann")
    assert outbox.held(TASK, ROUND, [who]) == {}
    (kept,) = outbox.keep(TASK, ROUND, [SealedReport(who, HERE, b"first")]).values()
    assert (kept.collection, kept.state, kept.answer, kept.fresh) == (HERE, "made", 0, True)
    (again,) = outbox.keep(TASK, ROUND, [SealedReport(who, THERE, b"second")]).values()
    assert (again.collection, again.fresh) == (HERE, False)
    report = outbox.report(TASK, ROUND, who)
    assert report is not None
    assert report.report == b"first"


def test_rounds_tasks_people_and_rows_are_apart(outbox: Outbox) -> None:
    people = [
        outbox.user(""),
        outbox.user("ann"),
        outbox.row(b"file", 1),
        outbox.row(b"file", 2),
        outbox.row(b"other", 1),
    ]
    assert len(set(people)) == len(people)
    for task, round in ((TASK, 1), (TASK, 2), ("other", 1)):
        outbox.keep(task, round, [SealedReport(who, HERE, task.encode() + who) for who in people])
    assert len(outbox.waiting(TASK, 2, [HERE])) == len(people)
    assert outbox.waiting(TASK, 2, [THERE]) == []


def test_another_process_finds_the_same_people(outbox: Outbox) -> None:
    outbox.keep(TASK, ROUND, [SealedReport(outbox.user("ann"), HERE, b"sealed")])
    again = Outbox(outbox.path)
    assert outbox.user("ann") == again.user("ann")
    report = again.report(TASK, ROUND, again.user("ann"))
    again.close()
    assert report is not None
    assert report.report == b"sealed"


def test_what_is_stored_stays_stored_and_its_bytes_go(outbox: Outbox) -> None:
    """An acknowledged report stays so, even if another process hears "closed" later."""
    who = outbox.user("ann")
    secret = b"sealed bytes that can be recognised " * 40
    outbox.keep(TASK, ROUND, [SealedReport(who, HERE, secret, secret)])
    assert secret[:36] in outbox.path.read_bytes()
    outbox.settle(TASK, ROUND, [SettledReport(who, "sending", 503)])
    assert outbox.held(TASK, ROUND, [who])[who].answer == 503
    outbox.settle(TASK, ROUND, [SettledReport(who, "sent", 204)])
    for later in ("late", "sending"):
        outbox.settle(TASK, ROUND, [SettledReport(who, later, 410)])
        assert outbox.held(TASK, ROUND, [who])[who].state == "sent"
    assert outbox.report(TASK, ROUND, who) is None
    outbox.close()
    for path in outbox.path.parent.iterdir():
        assert secret[:36] not in path.read_bytes(), path


def test_late_ones_become_stored_if_that_was_acknowledged(outbox: Outbox) -> None:
    who = outbox.user("")
    outbox.keep(TASK, ROUND, [SealedReport(who, HERE, b"sealed")])
    outbox.settle(TASK, ROUND, [SettledReport(who, "late", 410)])
    outbox.settle(TASK, ROUND, [SettledReport(who, "sent", 204)])
    assert outbox.held(TASK, ROUND, [who])[who].state == "sent"


def test_names_are_not_in_the_file_and_the_file_is_the_owners(outbox: Outbox) -> None:
    outbox.keep(
        TASK, ROUND, [SealedReport(outbox.user("Annemarie Unverwechselbar"), HERE, b"sealed")]
    )
    outbox.close()
    data = outbox.path.read_bytes()
    assert b"Unverwechselbar" not in data
    assert outbox.path.stat().st_mode & 0o077 == 0


RACING = """
import json, sys
from metricshuffle.collection.client.outbox import Outbox, SealedReport as Sealed
outbox, own = Outbox(sys.argv[1]), sys.argv[2].encode()
sys.stdin.readline()
for person in range(60):
    who = outbox.user(str(person))
    outbox.keep("task", 1, [Sealed(who, "a" * 64, own + bytes([person]))])
print(json.dumps([outbox.report("task", 1, outbox.user(str(person))).report.hex() for person in range(60)]))
"""  # noqa: E501


def test_two_processes_agree_on_every_report(outbox: Outbox) -> None:
    """Both write all sixty people at once and find the same bytes."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACING, str(outbox.path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    try:
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("\n")
            racer.stdin.flush()
        told = [json.loads(racer.communicate(timeout=120)[0]) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
    assert told[0] == told[1]
    assert len(outbox.waiting(TASK, ROUND, [HERE])) == 60


def test_half_a_batch_is_none(outbox: Outbox) -> None:
    with pytest.raises(InputError, match="cannot use the outbox"):
        outbox.keep(
            TASK,
            ROUND,
            [
                SealedReport(outbox.user("ann"), HERE, b"x"),
                SealedReport(outbox.user("ben"), HERE, None),  # type: ignore[arg-type]
            ],
        )
    assert outbox.waiting(TASK, ROUND, [HERE]) == []


def test_other_files_are_no_outbox_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    text = tmp_path / "notes.txt"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE batches (id)")
    connection.close()
    text.write_text("dear diary, " * 100)
    before = {path: path.read_bytes() for path in (other, text)}
    with pytest.raises(InputError, match="a database of another program"):
        Outbox(other)
    with pytest.raises(InputError, match="cannot use the outbox"):
        Outbox(text)
    assert {path: path.read_bytes() for path in (other, text)} == before
    with pytest.raises(InputError, match="a folder that does not exist"):
        Outbox(tmp_path / "no" / "out.box")
    with pytest.raises(InputError, match="cannot write the outbox"):
        Outbox(tmp_path)


def test_tickets_are_handed_out_once(outbox: Outbox) -> None:
    tickets = [bytes([number]) * 16 for number in range(3)]
    ann, ben, cat, dan = (outbox.user(name) for name in ("ann", "ben", "cat", "dan"))
    given = outbox.tickets_for({ann: HERE, ben: HERE}, tickets, [HERE])
    assert given == {ann: tickets[0], ben: tickets[1]}
    assert outbox.tickets_for({ben: HERE, cat: HERE}, tickets, [HERE]) == {
        ben: tickets[1],
        cat: tickets[2],
    }
    with pytest.raises(
        InputError,
        match="1 more person needs a ticket, and of the 3 that are offered 0 were never used",
    ):
        outbox.tickets_for({dan: HERE}, tickets, [HERE])
    assert outbox.tickets_for({dan: THERE}, tickets, [THERE]) == {dan: tickets[0]}


def test_with_too_few_tickets_nobody_gets_one(outbox: Outbox) -> None:
    people = {outbox.user(name): HERE for name in ("ann", "ben")}
    with pytest.raises(InputError, match="2 more people need a ticket"):
        outbox.tickets_for(people, [b"t" * 16], [HERE])
    assert outbox.tickets_for(dict([*people.items()][1:]), [b"t" * 16], [HERE]) == {
        [*people][1]: b"t" * 16
    }


def test_a_refused_ticket_is_replaced_and_never_offered_again(outbox: Outbox) -> None:
    tickets = [b"1" * 16, b"2" * 16]
    ann = outbox.user("ann")
    ben = outbox.user("ben")
    assert outbox.tickets_for({ann: HERE}, tickets, [HERE]) == {ann: tickets[0]}
    outbox.refuse_tickets([(ann, HERE)])
    assert outbox.tickets_for({ann: HERE}, tickets, [HERE]) == {ann: tickets[1]}
    with pytest.raises(InputError, match="0 were never used"):
        outbox.tickets_for({ben: HERE}, tickets, [HERE])


def test_another_ticket_is_taken_only_while_the_refusal_is_the_last_word(outbox: Outbox) -> None:
    who = outbox.user("")
    outbox.keep(TASK, ROUND, [SealedReport(who, HERE, b"first", b"boxes")])
    outbox.replace(TASK, ROUND, who, 403, b"second")
    held = outbox.report(TASK, ROUND, who)
    assert held is not None
    assert held.report == b"first"
    outbox.settle(TASK, ROUND, [SettledReport(who, "sending", 403)])
    outbox.replace(TASK, ROUND, who, 403, b"second")
    held = outbox.report(TASK, ROUND, who)
    assert held is not None
    assert (held.report, held.boxes) == (b"second", b"boxes")
    assert outbox.held(TASK, ROUND, [who])[who].answer == 0

"""Ledger on the device: one entry per report made, sums within a unit, limits that ask."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import load_task
from tests.cli.conftest import Terminal, terminal
from tests.collection.stand_in import StandIn, standing_in
from tests.collection.test_client import KIND, client_of

from metricshuffle.collection.client.client import Client
from metricshuffle.collection.client.device_ledger import (
    DeviceLedger,
    DeviceLimit,
    LedgerEntry,
    LossSum,
    OverLimit,
    PrivacyLoss,
)
from metricshuffle.collection.client.http_client import NotStored
from metricshuffle.collection.client.outbox import Outbox, SealedReport, Spending
from metricshuffle.errors import InputError

__all__ = ["terminal"]

TODAY = "2026-11-19"
LATEST = "2027-01-01"


def loss(epsilon: float, distance: float = 10.0, delta: float = 0.0, linear: bool = False) -> Any:
    return PrivacyLoss(epsilon, delta, distance, linear)


def entry(task: str = "a", round: int = 1, **changes: Any) -> LedgerEntry:
    return replace(
        LedgerEntry(
            task * 64, round, "Bo", "kcal", "values", 1, loss(3.0), loss(0.1), 1000, True, TODAY
        ),
        **changes,
    )


def limit(text: str) -> DeviceLimit:
    parsed, is_set = DeviceLimit.parse(text)
    assert is_set
    return parsed


@pytest.fixture
def shuffler() -> Iterator[StandIn]:
    with standing_in() as stand_in:
        yield stand_in


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    outbox = Outbox(tmp_path / "out.box")
    yield outbox
    outbox.close()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The day of the device's clock; tests replace it."""
    days = [TODAY]
    for module in ("device_ledger", "outbox"):
        monkeypatch.setattr(f"metricshuffle.collection.client.{module}.this_day", lambda: days[0])
    return days


# Sums


def test_sums_are_exact_and_shown_rounded_up() -> None:
    tenths = [entry(task, local=loss(0.1)) for task in "abc"]
    total = LossSum.of(tenths, Fraction(10), honest=False)
    assert total.epsilon == Fraction(3, 10)  # not 0.30000000000000004
    assert str(total) == "epsilon 0.3"
    assert limit("0.3 at 10 kcal in 1d").is_kept(total)
    assert not limit("0.2999999999 at 10 kcal in 1d").is_kept(total)
    thirds = [entry(task, local=loss(1.0, 3.0, linear=True)) for task in "ab"]
    total = LossSum.of(thirds, Fraction(1), honest=False)
    assert total.epsilon == Fraction(2, 3)
    assert str(total) == "epsilon 0.6667"


def test_rounds_of_a_task_have_one_loss_and_more_rounds_cost_again() -> None:
    rounds = [entry("a", number, rounds=3) for number in range(1, 5)]
    for count, times in ((1, 1), (3, 1), (4, 2)):
        assert LossSum.of(rounds[:count], Fraction(10), honest=False).epsilon == 3 * times


def test_nothing_is_promised_beyond_the_distance_of_a_task_or_without_local_noise() -> None:
    total = LossSum.of([entry()], Fraction(11), honest=False)
    assert total.epsilon is None
    assert str(total) == "no limit (nothing is promised for moves of more than 10)"
    raw = entry(local=loss(math.inf))
    assert LossSum.of([raw], Fraction(1), honest=False).epsilon is None
    assert "may read what you send" in str(LossSum.of([raw], Fraction(1), honest=False))
    assert str(LossSum.of([raw], Fraction(1), honest=True)) == "epsilon 0.1"


def test_units_and_measures_are_never_added_up() -> None:
    entries = [
        entry("a"),
        entry("b", unit="km"),
        entry("c", moves="values of a person's items"),
        entry("d", unit=""),
        entry("e", unit=""),
        entry("f"),
    ]
    lines = DeviceLedger(entries, [], 0, TODAY).lines()
    sums = [line.strip() for line in lines if "even if every shuffler" in line]
    assert sorted(sums) == sorted(
        f"epsilon {number}, even if every shuffler or adder colludes with the analysts;"
        for number in (6, 3, 3, 3, 3)
    )


# Limits


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("3 at 100 kcal in 30d", DeviceLimit("3", "100", "kcal", 30)),
        (" 0.5  at 2.5 in 7 days", DeviceLimit("0.5", "2.5", "", 7)),
        ("1 at 3 m in the air in 1d if honest", DeviceLimit("1", "3", "m in the air", 1, True)),
    ],
)
def test_limits_are_read(text: str, parsed: DeviceLimit) -> None:
    assert DeviceLimit.parse(text) == (parsed, True)
    assert DeviceLimit.parse(str(parsed)) == (parsed, True)


@pytest.mark.parametrize(
    "text",
    ["", "3", "3 at 100 kcal", "3 at 100 kcal in 0d", "-1 at 2 in 3d", "nan at 2 in 3d",
     "1e400 at 2 in 3d", "1 at 0 m in 3d", "3 at x in 3d", "3 at 1 kcal in 999999d"],
)  # fmt: skip
def test_what_is_no_limit_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match="limit"):
        DeviceLimit.parse(text)


def exceeded(entries: list[LedgerEntry], new: LedgerEntry, *limits: str) -> list[str]:
    return DeviceLedger(entries, [*map(limit, limits)], 0, TODAY).exceeded(new, LATEST)


def test_a_limit_compares_with_the_local_sum_unless_it_says_otherwise() -> None:
    new = entry("b", round=1)
    assert exceeded([entry("a")], new, "6 at 10 kcal in 30d") == []
    (told,) = exceeded([entry("a")], new, "5.9 at 10 kcal in 30d")
    assert "sum up to epsilon 6, even if every shuffler or adder colludes" in told
    assert "(and to epsilon 0.2, if the shufflers or adders are honest)" in told
    assert exceeded([entry("a")], new, "0.2 at 10 kcal in 30d if honest") == []
    assert len(exceeded([entry("a")], new, "0.1 at 10 kcal in 30d if honest")) == 1


def test_a_limit_on_the_local_sum_always_asks_about_raw_values() -> None:
    (told,) = exceeded([], entry(local=loss(math.inf)), "1000000 at 10 kcal in 30d")
    assert "no limit (the shufflers or adders and the analyst together may read" in told


def test_a_limit_asks_beyond_the_distance_and_about_units_without_one() -> None:
    (told,) = exceeded([], entry(), "9 at 11 kcal in 30d")
    assert "nothing is promised for moves of more than 10" in told
    (told,) = exceeded([], entry(unit="Kcal"), "9 at 10 kcal in 30d")
    assert told == "You have limits (9 at 10 kcal in 30d), and none for moves in Kcal."
    assert exceeded([], entry(unit="Kcal")) == []


def test_a_large_delta_is_over_every_limit() -> None:
    assert exceeded([], entry(shuffled=loss(0.1, delta=1e-3)), "9 at 10 kcal in 1d if honest") == []
    assert exceeded([], entry(shuffled=loss(0.1, delta=2e-3)), "9 at 10 kcal in 1d if honest")


def test_days_go_by_and_a_clock_gives_nothing_back(clock: list[str]) -> None:
    old = entry("a", day="2026-10-20")
    new = entry("b")
    text = "5 at 10 kcal in 30d"
    assert exceeded([old], new, text)  # thirty days, the first of them included
    assert not exceeded([replace(old, day="2026-10-19")], new, text)
    future = replace(old, day="2033-01-01")
    told = exceeded([future], new, text)
    assert "The clock of this device is behind the newest entry (2033-01-01)" in told[-1]
    clock[0] = "2099-01-01"  # ahead; the collection is still open, so it is no later than LATEST
    assert exceeded([replace(old, day="2026-12-05")], replace(new, day=clock[0]), text)


def test_an_entry_is_no_older_than_its_collection(shuffler: StandIn, clock: list[str]) -> None:
    clock[0] = "1970-01-01"
    collection = shuffler.opened(load_task(KIND))
    made = LedgerEntry.of(collection, verified=True)
    assert made.day == collection.terms.opens[:10] > "2020"


# In the outbox


def test_an_entry_is_stored_with_the_report_and_once(outbox: Outbox) -> None:
    who = outbox.user("ann")
    spent = Spending(entry(), LATEST)
    for _ in range(2):
        outbox.keep("a" * 64, 1, [SealedReport(who, "c", b"sealed")], spent=spent)
    ledger = outbox.ledger(who)
    assert ledger.entries == [entry()]
    assert (ledger.unknown, ledger.since) == (0, TODAY)
    outbox.decline("a" * 64, 1, who, "c")
    (kept,) = outbox.ledger(who).entries
    assert kept.state == "declined"
    assert outbox.ledger(outbox.user("ben")).entries == []


def test_over_a_limit_nothing_is_stored(outbox: Outbox) -> None:
    """The check is in the transaction that stores, so two processes cannot both pass it."""
    who = outbox.user("ann")
    outbox.set_limit(who, limit("5 at 10 kcal in 30d"))
    outbox.keep("a" * 64, 1, [SealedReport(who, "c", b"1")], spent=Spending(entry("a"), LATEST))
    second = Spending(entry("b"), LATEST)
    with pytest.raises(OverLimit, match="epsilon 6, even if"):
        outbox.keep("b" * 64, 1, [SealedReport(who, "c", b"2")], spent=second)
    assert outbox.held("b" * 64, 1, [who]) == {}
    assert len(outbox.ledger(who).entries) == 1
    agreed = replace(second, over_limit=True)
    outbox.keep("b" * 64, 1, [SealedReport(who, "c", b"2")], spent=agreed)
    assert len(outbox.ledger(who).entries) == 2


def test_of_two_reports_at_once_one_stays_below_the_limit(outbox: Outbox) -> None:
    """Each alone is within the limit, and both of them together are not."""
    who = outbox.user("ann")
    outbox.set_limit(who, limit("5 at 10 kcal in 30d"))
    together = threading.Barrier(2)
    refused: list[str] = []

    def make(task: str) -> None:
        mine = Outbox(outbox.path)
        spent = Spending(entry(task), LATEST)
        mine.check_limits([who], spent)
        together.wait(30)
        try:
            mine.keep(task * 64, 1, [SealedReport(who, "c", b"sealed")], spent=spent)
        except OverLimit:
            refused.append(task)
        mine.close()

    makers = [threading.Thread(target=make, args=(task,)) for task in "ab"]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert len(refused) == 1
    assert len(outbox.ledger(who).entries) == 1
    assert outbox.held(refused[0] * 64, 1, [who]) == {}


def test_a_forgotten_ledger_says_that_reports_are_not_counted(
    outbox: Outbox, clock: list[str]
) -> None:
    who = outbox.user("ann")
    outbox.set_limit(who, limit("5 at 10 kcal in 30d"))
    outbox.keep("a" * 64, 1, [SealedReport(who, "c", b"1")], spent=Spending(entry("a"), LATEST))
    clock[0] = "2026-11-25"
    outbox.forget_ledger(who)
    ledger = outbox.ledger(who)
    assert (list(ledger.entries), ledger.unknown, ledger.since) == ([], 1, "2026-11-25")
    assert len(ledger.limits) == 1
    assert "1 report of this outbox is not counted" in " ".join(ledger.lines())
    assert outbox.held("a" * 64, 1, [who])[who].state == "made"
    outbox.close()
    assert b'"analyst"' not in outbox.path.read_bytes()


def test_a_limit_is_replaced_and_removed(outbox: Outbox) -> None:
    who = outbox.user("")
    outbox.set_limit(who, limit("5 at 10 kcal in 30d"))
    outbox.set_limit(who, limit("4 at 10 kcal in 30d"))
    assert [str(each) for each in outbox.ledger(who).limits] == ["4 at 10 kcal in 30d"]
    gone, is_set = DeviceLimit.parse("none at 10 kcal in 30d")
    assert not is_set
    assert outbox.remove_limit(who, gone)
    assert not outbox.remove_limit(who, gone)


BEFORE = """
CREATE TABLE about (salt BLOB NOT NULL);
CREATE TABLE reports (
    task TEXT NOT NULL, round INTEGER NOT NULL, who BLOB NOT NULL, collection TEXT NOT NULL, report BLOB, boxes BLOB,
    state TEXT NOT NULL CHECK (state IN ('made', 'sending', 'sent', 'late', 'declined')),
    answer INTEGER NOT NULL DEFAULT 0, at INTEGER NOT NULL DEFAULT 0, tried INTEGER NOT NULL DEFAULT 0,
    CHECK ((report IS NULL) = (state NOT IN ('made', 'sending'))), PRIMARY KEY (task, round, who)
) WITHOUT ROWID;
CREATE TABLE tickets (
    collection TEXT NOT NULL, ticket BLOB NOT NULL, who BLOB NOT NULL, refused INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (collection, ticket)
) WITHOUT ROWID;
PRAGMA application_id = 1297305432;
PRAGMA user_version = 1;
"""  # noqa: E501


def test_an_outbox_of_the_version_before_gets_a_ledger(tmp_path: Path) -> None:
    """Its reports stay, and count as unknown ones; only those that may have been sent do."""
    path = tmp_path / "out.box"
    with sqlite3.connect(path) as connection:
        connection.executescript(BEFORE)
        connection.execute("INSERT INTO about VALUES (?)", (b"s" * 32,))
    connection.close()
    path.chmod(0o600)
    with sqlite3.connect(path) as connection:
        who = hashlib.blake2b(b"user\0ann", digest_size=32, key=b"s" * 32).digest()
        for task, state, tried in (("a", "sent", 0), ("b", "declined", 0), ("c", "declined", 1)):
            connection.execute(
                "INSERT INTO reports (task, round, who, collection, state, tried) "
                "VALUES (?, 1, ?, 'c', ?, ?)",
                (task, who, state, tried),
            )
    connection.close()
    outbox = Outbox(path)
    assert outbox.user("ann") == who
    ledger = outbox.ledger(who)
    assert (list(ledger.entries), ledger.unknown, ledger.since) == ([], 2, TODAY)
    assert len(outbox.held("a", 1, [who])) == 1
    outbox.keep("d" * 64, 1, [SealedReport(who, "c", b"1")], spent=Spending(entry("d"), LATEST))
    outbox.close()
    again = Outbox(path)
    assert len(again.ledger(who).entries) == 1
    again.close()


# With a shuffler


def test_a_report_has_its_entry_with_recomputed_guarantees(
    shuffler: StandIn, tmp_path: Path
) -> None:
    collection = shuffler.opened(load_task(KIND))
    with client_of(collection, tmp_path) as client:
        client.submit(7)
        with pytest.raises(NotStored):
            client.submit(8)
        (made,) = client.ledger().entries
        assert client.ledger("ann").entries == []
    claimed = collection.task
    assert made.verified
    assert made.local == PrivacyLoss.of(claimed.if_shuffler_colludes)
    assert made.shuffled == PrivacyLoss.of(claimed.guarantee)
    assert made.honest == claimed.guarantee.trust.honest_reports
    assert (made.state, made.round, made.unit) == ("sent", 1, claimed.guarantee.unit)
    with Client(collection, tmp_path / "other.box", believe=True) as client:
        client.submit(7)
        (believed,) = client.ledger().entries
    assert not believed.verified
    assert "as the task claims" in believed.line()


def test_over_the_limit_python_raises_and_says_how_to_go_on(
    shuffler: StandIn, tmp_path: Path
) -> None:
    collection = shuffler.opened(load_task(KIND))
    with client_of(collection, tmp_path) as client:
        unit = client.task.guarantee.unit
        me = client.outbox.user("me")
        client.outbox.set_limit(me, limit(f"0.01 at 1 {unit}".strip() + " in 30d"))
        with pytest.raises(OverLimit, match=r"Nothing was made or sent.*over_limit=True"):
            client.submit(7, user="me")
        assert shuffler.received == []
        assert client.ledger("me").entries == []
        assert client.submit(7, user="other").status == "stored"  # the limit is not theirs
        assert client.submit(7, user="me", over_limit=True).status == "stored"
        assert len(client.ledger("me").entries) == 1


KILLED_AT = """
import os, signal, sys
from metricshuffle.collection.client.client import Client
from metricshuffle.collection.client.http_client import NotStored

class Killing:
    def __init__(self, connection, left):
        self._connection, self._left = connection, left
    def execute(self, statement, *values):
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        return self._connection.execute(statement, *values)
    def __getattr__(self, name):
        return getattr(self._connection, name)

def submit(name, left):
    client = Client(sys.argv[1], f"{sys.argv[2]}/{name}.box", believe=True, patience=0.0)
    client.outbox._connection = Killing(client.outbox._connection, left)
    try:
        client.submit(7)
    except NotStored:
        pass

submit("first", -1)  # imports everything
for statement in range(40):
    child = os.fork()
    if not child:
        submit(statement, statement)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
print(statement)
"""


@pytest.mark.thorough
def test_killed_at_every_statement_no_report_is_without_its_entry(
    shuffler: StandIn, tmp_path: Path
) -> None:
    """kill -9 before each statement on the outbox: what was or can be sent is in the ledger."""
    collection = shuffler.opened(load_task(KIND))
    collection.save(tmp_path / "collection.json")
    shuffler.script[:] = [503] * 100  # so that the report waits
    words = [sys.executable, "-c", KILLED_AT, str(tmp_path / "collection.json"), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    last = int(done.stdout)
    assert 5 < last < 39
    stored = []
    for statement in range(last + 1):
        outbox = Outbox(tmp_path / f"{statement}.box")
        who = outbox.user("")
        reports = outbox.held(collection.task.digest, 1, [who])
        assert len(outbox.ledger(who).entries) == len(reports), statement
        stored.append(len(reports))
        outbox.close()
    assert stored == sorted(stored)
    assert {0, 1} == set(stored)
    assert 1 < len(set(shuffler.received)) <= 1 + sum(stored)


# On the command line


@pytest.fixture
def collection(terminal: Terminal, shuffler: StandIn) -> Any:
    collection = shuffler.opened(load_task(KIND))
    collection.save("collection.json")
    return collection


def text_of(result: Any) -> str:
    return " ".join((result.stdout + result.stderr).split())


def test_the_command_line_asks_at_the_limit(
    terminal: Terminal,
    shuffler: StandIn,
    collection: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unit = collection.task.guarantee.unit
    text = f"0.01 at 1 {unit}".strip() + " in 30d"
    assert terminal("budget", "--limit", text).exit_code == 0
    result = terminal("submit", "collection.json", "--value", "7")
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "your limit is 0.01" in text_of(result)
    assert "Give --yes to go over the limit this time" in text_of(result)
    assert shuffler.received == []
    questions: list[str] = []

    def answer(question: str, *, yes: bool) -> bool:
        """No to the first question, and yes to the second one."""
        questions.append(question)
        return yes or len(questions) > 1

    monkeypatch.setattr("metricshuffle.cli.submit_command.agrees", answer)
    assert terminal("submit", "collection.json", "--value", "7").exit_code == 2
    assert shuffler.received == []
    assert terminal("submit", "collection.json", "--value", "7").exit_code == 0
    assert all(question.endswith("Take part all the same?") for question in questions)
    assert len(shuffler.received) == 1
    told = text_of(terminal("budget", "--outbox", "submissions.outbox"))
    assert "asked by" in told
    assert "(recomputed here)" in told
    assert f"Your limits: {text}" in told


@pytest.mark.thorough
@pytest.mark.parametrize(("typed", "agreed"), [("y", True), ("n", False), ("", False)])
def test_a_question_is_asked_at_a_terminal_only(typed: str, agreed: bool) -> None:
    """Without a terminal the answer is no, even if something is piped in."""
    code = "from metricshuffle.cli.device_budget import agrees; print(agrees('Go on?', yes=False))"
    words = [sys.executable, "-c", code]
    piped = subprocess.run(words, input="y\n", capture_output=True, text=True, timeout=60)
    assert (piped.stdout, piped.stderr) == ("False\n", "")
    controller, terminal_end = os.openpty()
    process = subprocess.Popen(
        words, stdin=terminal_end, stderr=terminal_end, stdout=subprocess.PIPE, text=True
    )
    os.write(controller, f"{typed}\n".encode())
    out, _ = process.communicate(timeout=60)
    assert out == f"{agreed}\n"
    assert b"Go on? [y/N]" in os.read(controller, 200)
    for end in (controller, terminal_end):
        os.close(end)


def test_yes_goes_over_the_limit(
    terminal: Terminal,
    shuffler: StandIn,
    collection: Any,
) -> None:
    terminal("budget", "--limit", "0 at 1 anything in 30d")
    words = ("submit", "collection.json", "--value", "7")
    assert terminal(*words).exit_code == 2
    assert terminal(*words, "--yes").exit_code == 0
    assert len(shuffler.received) == 1


def test_forgetting_says_what_it_forgets_and_asks(
    terminal: Terminal,
    shuffler: StandIn,
    collection: Any,
) -> None:
    terminal("submit", "collection.json", "--value", "7")
    result = terminal("budget", "--forget")
    assert result.exit_code == 2
    assert f"round 1 of task {collection.task.digest[:8]}" in result.stderr
    assert "nothing was forgotten" in result.stderr
    result = terminal("budget", "--forget", "--yes", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert (document["entries"], document["unknown"]) == ([], 1)


def test_options_of_device_and_analyst_do_not_mix(terminal: Terminal) -> None:
    assert "there is no outbox nothing.box" in terminal.refused("budget", "--outbox", "nothing.box")
    assert "one or the other" in terminal.refused("budget", "some.ledger", "--user", "me")
    terminal("budget", "--outbox", "my.box", "--limit", "3 at 1 kcal in 30d")
    assert "is an outbox, with reports of your own; give --outbox my.box" in terminal.refused(
        "budget", "my.box"
    )
    assert "there is no limit for at 2 kcal" in terminal.refused(
        "budget", "--outbox", "my.box", "--limit", "none at 2 kcal in 30d"
    )
    assert "--yes belongs to --forget" in terminal.refused("budget", "--yes")
    assert "is not a limit" in terminal.refused("budget", "--limit", "three")

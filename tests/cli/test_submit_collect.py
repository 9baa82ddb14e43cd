"""submit and collect on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.catalogue.planned_tasks import load_task, planned
from tests.cli.conftest import Terminal
from tests.collection.stand_in import StandIn, standing_in
from typer.testing import CliRunner

import metricshuffle as ms
from metricshuffle.cli.command_group import app
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.terms import Collection
from metricshuffle.tasks.release import Release


@pytest.fixture
def shuffler() -> Iterator[StandIn]:
    with standing_in() as stand_in:
        yield stand_in


@pytest.fixture
def key(tmp_path: Path) -> AnalystKey:
    key = AnalystKey.new()
    key.save(tmp_path / "analyst.key")
    return key


@pytest.fixture
def collection(terminal: Terminal, shuffler: StandIn, key: AnalystKey) -> Collection:
    """Of whole numbers 0..20 in shares, in collection.json."""
    collection = shuffler.opened(load_task("sum in shares"), key)
    collection.save("collection.json")
    return collection


def parsed_output(result: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def not_stored(terminal: Terminal, *words: str) -> str:
    """What is said with exit code 2, when something may have been written down."""
    result = terminal(*words)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return " ".join(result.stderr.split())


# submit


def test_your_own_value(terminal: Terminal, shuffler: StandIn, collection: Collection) -> None:
    result = terminal("submit", "collection.json", "--value", "7")
    assert (result.exit_code, result.stdout) == (0, "1 of 1 report is stored.\n"), result.output
    result = terminal("submit", "collection.json", "--value", "7", "--json")
    assert result.exit_code == 2
    assert parsed_output(result) == {
        "people": 1,
        "stored": 1,
        "already": 1,
        "resumed": 0,
        "late": 0,
        "refused": 0,
        "waiting": 0,
        "declined": 0,
        "collections": [collection.digest],
        "outbox": "submissions.outbox",
    }
    assert len(shuffler.received) == 1


def test_another_value_of_somebody_who_has_reported(
    terminal: Terminal, shuffler: StandIn, collection: Collection
) -> None:
    """Nothing is sent, exit code 2, with who reported and when; others use --user."""
    assert terminal("submit", "collection.json", "--value", "7").exit_code == 0
    for value in ("9", "7"):
        words = not_stored(terminal, "submit", "collection.json", "--value", value)
        assert "Nothing was sent now. A report was stored before, on 20" in words
        assert "outbox submissions.outbox that was the person who uses it without --user" in words
        assert "is stored" not in words
    assert terminal("submit", "collection.json", "--value", "7", "--user", "ann").exit_code == 0
    assert "that was the user 'ann'" in not_stored(
        terminal, "submit", "collection.json", "--value", "8", "--user", "ann"
    )
    assert len(shuffler.received) == 2


def test_another_value_while_a_report_waits(
    terminal: Terminal, shuffler: StandIn, collection: Collection
) -> None:
    """The one that waits is sent, and nothing is claimed for the value that is given now."""
    shuffler.script = [404]
    assert "stored in the outbox" in not_stored(
        terminal, "submit", "collection.json", "--value", "7"
    )
    result = terminal("submit", "collection.json", "--value", "9")
    assert (result.exit_code, result.stdout) == (0, "1 of 1 report is stored.\n")
    assert "The value given now was not used" in " ".join(result.stderr.split())
    assert len(shuffler.received) == 2
    assert len(set(shuffler.received)) == 1


def test_named_people_who_have_reported(
    terminal: Terminal, shuffler: StandIn, collection: Collection
) -> None:
    Path("first.csv").write_text("who,kcal\nann,1\nben,2\n")
    Path("second.csv").write_text("who,kcal\nann,3\ncat,4\n")
    for file in ("first.csv", "second.csv"):
        result = terminal(
            "submit", "collection.json", file, "--column", "kcal", "--user-column", "who"
        )
        assert result.exit_code == 0, result.output
    assert result.stdout == "2 of 2 reports are stored, 1 of them before.\n"
    assert (
        "Reports of 1 person were made before; the values that were given for them now are not "
        "used." in " ".join(result.stderr.split())
    )
    assert len(shuffler.received) == 3


def test_declined(terminal: Terminal, shuffler: StandIn, collection: Collection) -> None:
    """What was not sent is not sent; what may have been is not claimed not to be."""
    first = terminal(
        "submit", "collection.json", "--decline", "--user", "zoe"
    )  # (before anything was made)
    assert (
        first.exit_code,
        "nothing will be, for the user 'zoe'" in " ".join(first.stdout.split()),
    ) == (0, True), first.output
    assert "declined" in not_stored(
        terminal, "submit", "collection.json", "--value", "7", "--user", "zoe"
    )
    assert shuffler.received == []
    shuffler.script = [404]
    not_stored(terminal, "submit", "collection.json", "--value", "7")
    assert "may have been sent" in not_stored(terminal, "submit", "collection.json", "--decline")
    assert "may have been sent before that" in not_stored(
        terminal, "submit", "collection.json", "--value", "8"
    )
    assert (
        terminal("submit", "collection.json", "--resend").stdout
        == "No report waits in the outbox.\n"
    )
    assert len(shuffler.received) == 1
    assert terminal("submit", "collection.json", "--value", "7", "--user", "ann").exit_code == 0
    assert "A report was stored before" in not_stored(
        terminal, "submit", "collection.json", "--decline", "--user", "ann"
    )


def test_value_and_ticket_from_standard_input_and_files(
    terminal: Terminal, shuffler: StandIn, key: AnalystKey
) -> None:
    """Neither stands in the history of a shell or in the list of processes."""
    tickets = [bytes([number]) * 16 for number in range(3)]
    shuffler.opened(load_task("sum in shares"), key, tickets=tickets).save("collection.json")
    Path("ticket.txt").write_text(f"{tickets[0].hex()}\n")
    words = ["submit", "collection.json", "--value", "-", "--ticket-file", "ticket.txt"]
    result = CliRunner().invoke(app, words, input="7\n")
    assert (result.exit_code, result.stdout) == (0, "1 of 1 report is stored.\n"), result.output
    words = ["submit", "collection.json", "--value", "7", "--user", "ann", "--ticket-file", "-"]
    assert CliRunner().invoke(app, words, input=f"{tickets[1].hex()}\n").exit_code == 0
    for wrong, sentence in (
        (["--value", "-", "--ticket-file", "-"], "standard input is read once"),
        (["--value", "-", "--value", "7"], "standard input is read once"),
        (["-", "--column", "v", "--tickets-file", "-"], "standard input is read once"),
        (["--value", "7", "--ticket", "00" * 16, "--ticket-file", "ticket.txt"], "not both"),
        (
            ["--value", "-", "--user", "x", "--ticket-file", "ticket.txt"],
            "takes one value a person",
        ),
    ):
        result = CliRunner().invoke(app, ["submit", "collection.json", *wrong], input="7\n8\n")
        assert (result.exit_code, sentence in " ".join(result.stderr.split())) == (2, True), (
            result.output
        )
    result = CliRunner().invoke(
        app, ["submit", "collection.json", "--value", "-", "--user", "x"], input="\n"
    )
    assert "nothing is written there" in " ".join(result.stderr.split())
    assert len(shuffler.received) == 2


def test_items_from_standard_input(terminal: Terminal, shuffler: StandIn, key: AnalystKey) -> None:
    collection = shuffler.opened(load_task("users' items"), key)
    collection.save("collection.json")
    result = CliRunner().invoke(
        app, ["submit", "collection.json", "--value", "-"], input="tea\ntea\nwater\n"
    )
    assert result.exit_code == 0, result.output
    assert len(shuffler.reports(collection)) == 1


def test_help_says_what_is_revealed(terminal: Terminal) -> None:
    words = " ".join(terminal("submit", "-h").stdout.replace("│", " ").split())
    assert "shell history" in words


def test_what_does_not_fit_together(
    terminal: Terminal, shuffler: StandIn, collection: Collection, values: Path
) -> None:
    """One sentence, exit code 2, nothing sent and no file touched: not even an outbox."""
    for words, sentence in {
        "collection.json": "one of these five",
        "collection.json --value 7 values.csv": "one of these five",
        "collection.json --value 7 --resend": "one of these five",
        "collection.json --value 7 --value 8": "takes one value a person",
        "collection.json --value 21": "is not in",
        "collection.json --value seven": "is not in",
        "collection.json --value 7 --column kcal": "are for files",
        "collection.json --value 7 --tickets-file analyst.key": "without tickets",
        "collection.json --resend --user ann": "--user belongs to",
        "collection.json --resend --ticket-file values.csv": "belongs to --value",
        "collection.json values.csv --column kcal --ticket 00": "belongs to --value",
        "collection.json values.csv": "name the column",
        "collection.json values.csv --column nothing": "nothing",
        "collection.json missing.csv --column kcal": "no such file",
        "collection.json values.csv --column name": "40 of 40 values",
        "missing.json --value 7": "no such file",
        "values.csv --value 7": "not a collection",
        "collection.json --value 7 --part values.csv": "not a collection",
        "https://x.example/v1/collections/abc --value 7": "--outbox",
        "collection.json --value 7 --outbox no/where": "does not exist",
        "collection.json --value 7 --outbox values.csv": "cannot use the outbox",
        "collection.json --value 7 --patience soon": "--patience",
        "collection.json --value 7 --digest 00": "digest",
        "collection.json --value 7 --ticket 00": "without tickets",
    }.items():
        assert sentence in terminal.refused("submit", *words.split()), words
    assert shuffler.received == []


def test_a_file_of_values_again_and_again(
    terminal: Terminal, shuffler: StandIn, collection: Collection, values: Path
) -> None:
    """After a busy shuffler the same command continues with the same bytes."""
    shuffler.script = [204] * 10 + [503] * 200
    result = terminal(
        "submit", "collection.json", "values.csv", "--column", "kcal", "--patience", "0.1", "--json"
    )
    assert result.exit_code == 2
    counts = parsed_output(result)
    assert counts["stored"] + counts["waiting"] == 40
    assert 10 <= counts["stored"] < 40
    assert re.search(
        r"metricshuffle: \d+ of 40 reports are stored\. \d+ are not acknowledged yet, and "
        r"stored in the outbox",
        result.stderr,
    )
    assert "--resend" in result.stderr
    shuffler.script = []
    result = terminal("submit", "collection.json", "values.csv", "--column", "kcal")
    assert (result.exit_code, result.stdout) == (
        0,
        f"40 of 40 reports are stored, {counts['stored']} of them before.\n",
    )
    assert "Every row counted as another person" in result.stderr
    assert len(shuffler.reports(collection)) == 40


@pytest.mark.thorough
def test_resend(
    terminal: Terminal, shuffler: StandIn, collection: Collection, values: Path
) -> None:
    shuffler.script = [404] * 40
    assert terminal("submit", "collection.json", "values.csv", "--column", "kcal").exit_code == 2
    values.unlink()
    result = terminal("submit", "collection.json", "--resend", "--json")
    assert (result.exit_code, parsed_output(result)["stored"]) == (0, 40)
    assert len(shuffler.received) == 80
    assert len(set(shuffler.received)) == 40
    assert (
        terminal("submit", "collection.json", "--resend").stdout
        == "No report waits in the outbox.\n"
    )


@pytest.mark.thorough
def test_values_are_read_as_randomize_reads_them(
    terminal: Terminal, shuffler: StandIn, collection: Collection
) -> None:
    Path("german.csv").write_text("wer;kcal\n" + "ann;3,0\nann;5,0\nben;\ncat;300\n")
    words = (
        "submit collection.json german.csv --column kcal --user-column wer --decimal , "
        "--per-user mean --drop-missing --clamp"
    )
    result = terminal(*words.split())
    assert (result.exit_code, result.stdout) == (0, "2 of 2 reports are stored.\n"), result.output
    assert "1 row misses a value" in result.stderr
    Path("bare.csv").write_text("3\n4\n")
    assert (
        terminal("submit", "collection.json", "bare.csv", "--column", "1", "--no-header").exit_code
        == 0
    )
    assert len(shuffler.reports(collection)) == 4


def test_a_pipe(terminal: Terminal, shuffler: StandIn, collection: Collection) -> None:
    """It is known by its content: the same rows through a pipe again are the same people."""
    for _ in range(2):
        words = ["submit", "collection.json", "-", "--column", "kcal", "--json"]
        result = CliRunner().invoke(app, words, input=b"kcal\n1\n2\n3\n")
        assert (result.exit_code, parsed_output(result)["stored"]) == (0, 3), result.output
    assert len(shuffler.received) == 3


TYPED = {
    "centroid": (["46.95,7.44"], ["50.0,7.44"], ["46.95"]),
    "labels": (["tea"], ["beer"], ["tea,coffee"]),
    "mean of real numbers": (["3.25"], ["11"], ["x"]),
    "users' items": (["tea", "tea", "water"], ["tea", "tea", "beer"], ["tea"]),
}


@pytest.mark.parametrize("kind", TYPED)
def test_values_that_are_typed(
    kind: str, terminal: Terminal, shuffler: StandIn, key: AnalystKey
) -> None:
    collection = shuffler.opened(load_task(kind), key)
    collection.save("collection.json")
    good, *wrong = TYPED[kind]
    for bad in wrong:
        terminal.refused(
            "submit", "collection.json", *(word for text in bad for word in ("--value", text))
        )
    result = terminal(
        "submit", "collection.json", *(word for text in good for word in ("--value", text))
    )
    assert result.exit_code == 0, result.output
    assert len(shuffler.reports(collection)) == 1


def test_a_place_with_decimal_commas(
    terminal: Terminal, shuffler: StandIn, key: AnalystKey
) -> None:
    collection = shuffler.opened(load_task("centroid"), key)
    collection.save("collection.json")
    assert (
        terminal("submit", "collection.json", "--value", "46,95;7,44", "--decimal", ",").exit_code
        == 0
    )
    assert (
        terminal(
            "submit", "collection.json", "--value", "1,2", "--coordinates", "cells", "--user", "b"
        ).exit_code
        == 2
    )
    assert (
        terminal(
            "submit", "collection.json", "--value", "99,7.44", "--clamp", "--user", "c"
        ).exit_code
        == 2
    )
    assert len(shuffler.reports(collection)) == 1


def test_tickets(terminal: Terminal, shuffler: StandIn, key: AnalystKey, values: Path) -> None:
    tickets = [bytes([number]) * 16 for number in range(50)]
    collection = shuffler.opened(load_task("sum in shares"), key, tickets=tickets[:45])
    collection.save("collection.json")
    Path("few.txt").write_text("".join(f"{ticket.hex()}\n" for ticket in tickets[:5]))
    Path("tickets.txt").write_text("".join(f"{ticket.hex()}\n" for ticket in tickets))
    Path("twice.txt").write_text(f"{tickets[0].hex()}\n" * 2)
    assert "needs tickets" in terminal("submit", "collection.json", "--value", "7").stderr
    assert (
        "contains a ticket twice"
        in terminal(
            "submit",
            "collection.json",
            "values.csv",
            "--column",
            "kcal",
            "--tickets-file",
            "twice.txt",
        ).stderr
    )
    result = terminal(
        "submit", "collection.json", "values.csv", "--column", "kcal", "--tickets-file", "few.txt"
    )
    assert (result.exit_code, shuffler.received) == (2, [])
    assert "40 more people need a ticket, and of the 5" in result.stderr
    result = terminal(
        "submit",
        "collection.json",
        "values.csv",
        "--column",
        "kcal",
        "--tickets-file",
        "tickets.txt",
    )
    assert (result.exit_code, result.stdout) == (0, "40 of 40 reports are stored.\n"), result.output
    assert (
        terminal(
            "submit", "collection.json", "--value", "7", "--ticket", tickets[44].hex()
        ).exit_code
        == 0
    )
    result = terminal(
        "submit", "collection.json", "--value", "7", "--ticket", tickets[49].hex(), "--user", "ann"
    )
    assert result.exit_code == 2
    assert "does not know this ticket" in result.stderr
    assert {shuffler.boxes(collection, report)[0] for report in shuffler.received} == {
        *tickets[:40],
        tickets[44],
        tickets[49],
    }


@pytest.mark.thorough
def test_the_parts_of_a_split(
    terminal: Terminal, shuffler: StandIn, key: AnalystKey, values: Path
) -> None:
    parts = [shuffler.opened(load_task("sum in shares"), key, split=(part, 2)) for part in (1, 2)]
    for part, collection in enumerate(parts, 1):
        collection.save(f"part-{part}.json")
    result = terminal(
        "submit", "part-1.json", "--part", "part-2.json", "values.csv", "--column", "kcal"
    )
    assert result.exit_code == 0, result.output
    assert sum(len(shuffler.reports(part)) for part in parts) == 40
    assert all(shuffler.reports(part) for part in parts)


# collect


def released(terminal: Terminal, shuffler: StandIn, collection: Collection, values: Path) -> None:
    assert terminal("submit", "collection.json", str(values), "--column", "kcal").exit_code == 0
    shuffler.let_go(collection)


COLLECT = ("collect", "collection.json", "--analyst-key", "analyst.key", "--output", "release.json")


def test_collecting_before_and_after_the_release(
    terminal: Terminal, shuffler: StandIn, collection: Collection, values: Path
) -> None:
    assert "is not released yet: it closes at" in terminal.refused(*COLLECT)
    released(terminal, shuffler, collection, values)
    result = terminal(*COLLECT)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("sum = ")
    assert "As it arrived (the 40 reports without 0 declared colluders)" in result.stdout
    assert "Wrote release.json." in result.stderr
    assert Release.load("release.json").raw_values_seen is False
    document = parsed_output(terminal(*COLLECT, "--json"))
    assert document["collected"]["people"] == document["reports"] == 40
    assert document["collected"]["guarantee_as_arrived"]["trust"]["honest_reports"] == 40
    assert ms.Budget("releases.ledger").releases[0].reports == 40
    shuffler.release_status = 410
    result = terminal(*COLLECT)
    assert result.exit_code == 0
    assert "release.json has this release already" in result.stderr


@pytest.mark.thorough
def test_pages_about_a_collected_release(
    terminal: Terminal, shuffler: StandIn, collection: Collection, values: Path
) -> None:
    """report, map and budget show it, with what arrived."""
    pytest.importorskip("jinja2")
    released(terminal, shuffler, collection, values)
    planned("sum in shares").save("plan.json")
    assert terminal(*COLLECT).exit_code == 0
    assert terminal("report", "plan.json", "release.json").exit_code == 0
    for words in (
        "Sealed reports of 40 people arrived",
        "As it arrived",
        "Nobody checked that reports come from different people",
    ):
        assert words in Path("report.html").read_text()
    result = terminal("map", "release.json", "--output", "map.html")
    assert result.exit_code == 0, result.output
    assert "Sealed reports of 40 people arrived" in Path("map.html").read_text()
    assert "Sealed reports of 40 people arrived" in result.stdout
    assert "1 of 1 round released, 0 left" in terminal("budget", "plan.json").stdout
    assert "1 of 1 round released, 0 left" in terminal("budget", "releases.ledger").stdout


def test_what_cannot_be_collected(
    terminal: Terminal, shuffler: StandIn, collection: Collection, values: Path
) -> None:
    released(terminal, shuffler, collection, values)
    AnalystKey.new().save("other.key")
    before = ("collect", "collection.json", "--output", "release.json", "--analyst-key")
    for words, sentence in (
        ((*before, "other.key"), "this key is not the one"),
        ((*before, "values.csv"), "is not an analyst's key"),
        ((*before, "missing"), "cannot read the analyst's key missing"),
        (
            ("collect", "values.csv", "--analyst-key", "analyst.key", "--output", "release.json"),
            "not a collection",
        ),
        (
            ("collect", "collection.json", "--analyst-key", "analyst.key", "--output", "-"),
            "--output must be a file",
        ),
        (
            (
                "collect",
                "collection.json",
                "--analyst-key",
                "analyst.key",
                "--output",
                "collection.json",
            ),
            "also the input",
        ),
        (
            (
                "collect",
                "collection.json",
                "--analyst-key",
                "analyst.key",
                "--output",
                "analyst.key",
            ),
            "also the input",
        ),
        (
            (
                "collect",
                "collection.json",
                "--analyst-key",
                "analyst.key",
                "--output",
                "releases.ledger",
            ),
            "is the ledger",
        ),
        ((*COLLECT, "--processes", "0"), "--processes"),
    ):
        assert sentence in terminal.refused(*words), words


@pytest.mark.thorough
def test_a_second_collection_of_the_round_is_not_counted_in(
    terminal: Terminal, shuffler: StandIn, collection: Collection, key: AnalystKey, values: Path
) -> None:
    """The ledger rejects it before it is shown or acknowledged; so does that of a copy."""
    released(terminal, shuffler, collection, values)
    assert terminal(*COLLECT).exit_code == 0
    other = shuffler.opened(load_task("sum in shares"), key)
    other.save("other.json")
    assert (
        terminal(
            "submit", "other.json", "values.csv", "--column", "kcal", "--outbox", "other.box"
        ).exit_code
        == 0
    )
    shuffler.let_go(other)
    words = (
        "collect",
        "other.json",
        "--analyst-key",
        "analyst.key",
        "--output",
        "other-release.json",
    )
    result = terminal(*words)
    assert result.exit_code == 2
    assert "releases.ledger says that round 1 was released" in result.stderr
    assert not Path("other-release.json").exists()
    assert f"DELETE /v1/collections/{other.digest}/release" not in shuffler.asked


def test_somebody_sent_garbage(
    terminal: Terminal, shuffler: StandIn, collection: Collection, values: Path
) -> None:
    released(terminal, shuffler, collection, values)
    sealing = collection.sealing
    boxes = [bytes([number]) * sealing.inner_size for number in range(sealing.messages)]
    shuffler.received[-1] = sealing.closed(boxes, collection.keys[-1])
    shuffler.let_go(collection)
    result = terminal(*COLLECT)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the round is spent" in result.stderr
    assert not Path("release.json").exists()
    assert ms.Budget("releases.ledger").releases[0].round == 1

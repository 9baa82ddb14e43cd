"""Commands for operators and analysts of a collection: errors before sending, and effects."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.collection.running import Running, post_report, report_of, running

from metricshuffle import Integers, Sum, Target, plan
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.operator.control_api import NoAnswerError, Operator
from metricshuffle.collection.terms import Collection, parse_time
from metricshuffle.errors import InputError

PUBLIC = AnalystKey.new().public
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def plan_file(shares_plan: Any, terminal: Any) -> Path:
    """Forty people of whom thirty are honest, in additive shares."""
    path = Path("plan.json")
    shares_plan.save(path)
    return path


@pytest.fixture(scope="module")
def shuffler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("shuffler")
    with running(folder, f"sqlite:///{folder / 'shuffler.db'}") as made:
        yield made


# The analyst's key


def test_an_analysts_key(terminal: Any) -> None:
    """Only the public half is printed; the key is for its owner alone and is never replaced."""
    result = terminal.typed("analyst key --output analyst.key")
    key = AnalystKey.load("analyst.key")
    assert (result.exit_code, result.stdout) == (0, f"{key.public}\n")
    assert key.private.data.hex() not in result.output
    assert stat.S_IMODE(Path("analyst.key").stat().st_mode) == 0o600
    assert "never replaced" in terminal.refused("analyst", "key", "--output", "analyst.key")
    assert "does not exist" in terminal.refused("analyst", "key", "--output", "missing/analyst.key")
    told = json.loads(terminal.typed("analyst key --output other.key --json").stdout)
    assert told == {"public": AnalystKey.load("other.key").public}


# Serving


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--listen 8460", "--listen must be an address and a port"),
        ("--listen 127.0.0.1:99999", "--listen must be an address and a port"),
        ("--listen ::1:80", "--listen must be an address and a port"),
        ("--listen no.such.host.invalid:80", "is not an address of this machine"),
        ("--listen 127.0.0.1:0 --key plan.json", "--certificate and --key belong together"),
        ("--listen 127.0.0.1:0 --certificate a --key b", "there is no such file"),
        (
            "--listen 127.0.0.1:0 --certificate plan.json --key plan.json",
            "are not a certificate and its key",
        ),
        (
            "--listen 127.0.0.1:0 --after shuffler.example",
            "--after must be an address like https://shuffler.example:8460",
        ),
        (
            "--listen 127.0.0.1:0 --origin https://survey.example/page",
            "--origin must be an address",
        ),
        ("--listen 127.0.0.1:0 --origin *", "--origin must be an address"),
    ],
)
def test_what_cannot_be_served(terminal: Any, plan_file: Path, options: str, words: str) -> None:
    assert words in terminal.refused(
        "serve", "--store", "sqlite:///x.db", "--keys", "keys", *options.split()
    )


def test_a_database_that_cannot_be_opened(terminal: Any, plan_file: Path) -> None:
    """The address may hold a password, which is not repeated."""
    for store in ("mysql://me:hunter2@host/db", "sqlite:///missing/x.db", "sqlite:///plan.json"):
        result = terminal("serve", "--store", store, "--keys", "keys", "--listen", "127.0.0.1:0")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("metricshuffle: ")
        assert "hunter2" not in result.stderr


def test_a_port_that_is_taken(terminal: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = terminal.refused(
            "serve", "--store", "sqlite:///x.db", "--keys", "keys", "--listen", address
        )
    assert f"cannot listen on {address}: Address already in use" in told
    if sys.platform == "linux":  # (what the shuffler would have locked is not locked any more)
        assert re.search(r"^VmLck:\s+0 kB$", Path("/proc/self/status").read_text(), re.MULTILINE)


# Opening: what cannot be is refused before anybody is asked


def open_words(*more: str, **changes: str | None) -> list[str]:
    options: dict[str, str | None] = {
        "--server": NOBODY,
        "--analyst": PUBLIC,
        "--closes": "1h",
        "--colluders": "2",
        "--output": "collection.json",
    }
    options |= {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    return ["collection", "open", "plan.json", *given, *more]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colluders": None}, "Missing option '--colluders'"),
        ({"colluders": "-1"}, "--colluders must be 0 or more"),
        (
            {"colluders": "11"},
            "takes 41 reports, and the plan is for 40 people. Plan again with --honest 29 or fewer",
        ),
        ({"closes": "soon"}, "--closes must be a duration like 90s, 10m, 1h or 2d, or a time"),
        ({"closes": "2020-01-31T12:00:00Z"}, "--closes must lie in the future"),
        (
            {"opens": "2h", "closes": "2020-01-31T12:00:00Z"},
            "--closes must lie in the future and after --opens",
        ),
        ({"extends": "2020-01-31T12:00:00Z"}, "--extends not before --closes"),
        ({"retention": "ever"}, "--retention must be a duration"),
        ({"round": "2"}, "--round must be from 1 to 1"),
        ({"split": "0"}, "--split from 1 to 1,000"),
        ({"analyst": "analyst1-x"}, "starts with analyst1-"),
        ({"analyst": "analyst1-x-y"}, "64 hexadecimal digits"),
        ({"admission": "friends"}, "--admission must be one of open, tickets"),
        ({"admission": "tickets"}, "belong together"),
        ({"tickets": "40"}, "belong together"),
        (
            {"admission": "tickets", "tickets": "31", "tickets_file": "t.txt"},
            "--tickets must be at least 32",
        ),
        (
            {"admission": "tickets", "tickets": "40", "tickets_file": "old.txt"},
            "tickets are never replaced",
        ),
        ({"server": "shuffler.example"}, "--server must be an address"),
        ({"run_by": "us", "server": NOBODY}, "the operator needs a token"),
        ({"keys": "nowhere"}, "--keys nowhere has no operator's token in it"),
        ({"token_file": "nowhere"}, "cannot read nowhere"),
        ({"token_file": "plan.json"}, "an operator's token must consist of letters and digits"),
        (
            {},
            "the operator needs a token: give --keys FOLDER or --token-file FILE, or set "
            "METRICSHUFFLE_TOKEN",
        ),
        ({"output": "missing/collection.json"}, "lies in a folder that does not exist"),
        ({"output": "plan.json"}, "is also the input"),
    ],
)
def test_what_cannot_be_opened(
    terminal: Any,
    plan_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str | None],
    words: str,
) -> None:
    monkeypatch.delenv("METRICSHUFFLE_TOKEN", raising=False)
    Path("old.txt").write_text("0" * 32)
    assert words in " ".join(terminal.refused(*open_words(**changes)).split())


def test_a_shuffler_that_does_not_run(
    terminal: Any, plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRICSHUFFLE_TOKEN", "0" * 64)
    assert f"cannot reach {NOBODY}" in terminal.refused(*open_words())


def test_plans_that_no_shuffler_can_carry(terminal: Any, sum_plan: Any) -> None:
    sum_plan.save("plan.json")
    Path("token").write_text("0" * 64)
    Path("token").chmod(0o600)
    told = terminal.refused(*open_words(token_file="token"))  # noqa: S106 - the name of a file
    assert "too many to be sealed one by one; plan with --encoding modular" in told


# With a shuffler


def opened(terminal: Any, *words: str) -> Any:
    result = terminal(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.thorough
def test_a_collection_from_open_to_abort(
    terminal: Any, plan_file: Path, shuffler: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The served file, status and abort; a second collection of the round is rejected."""
    keys = str(shuffler.keys)
    result = terminal(
        *open_words(server=shuffler.url, keys=keys, asked_by="The Institute", run_by="A friend")
    )
    assert result.exit_code == 0, result.output
    collection = Collection.load("collection.json")
    assert collection.digest in result.stdout
    assert (
        "after 40 reports all others are rejected. --admission tickets prevents that."
        in " ".join(result.output.split())
    )
    assert (
        collection.terms.analyst.name,
        collection.terms.hops[0].name,
        collection.terms.apart,
    ) == ("The Institute", "A friend", True)
    assert (collection.terms.minimum, collection.terms.maximum, collection.terms.colluders) == (
        32,
        40,
        2,
    )
    collection.verify()
    assert post_report(collection.url, [report_of(collection)]).statuses == [204]
    told = opened(terminal, "collection", "status", "collection.json", "--keys", keys)
    assert {name: told[name] for name in ("state", "reports", "minimum", "closes", "round")} == {
        "state": "open",
        "reports": 1,
        "minimum": 32,
        "closes": collection.terms.closes,
        "round": 1,
    }
    assert "nobody may report twice" in terminal.refused(
        *open_words(server=shuffler.url, keys=keys, output="second.json")
    )
    monkeypatch.setenv("METRICSHUFFLE_TOKEN", "1" * 64)
    assert "this is not the operator's token." in terminal.refused(
        "collection", "abort", "collection.json"
    )
    monkeypatch.setenv("METRICSHUFFLE_TOKEN", shuffler.operator.token)
    assert "abort it instead" in terminal.refused("collection", "purge", "collection.json")
    token = Path("token")
    token.write_text(f"{shuffler.operator.token}\n")
    assert "others on this machine can read it" in terminal.refused(
        "collection", "abort", "collection.json", "--token-file", "token"
    )
    token.chmod(0o600)
    told = opened(
        terminal,
        "collection",
        "abort",
        "collection.json",
        "--token-file",
        "token",
        "--reason",
        "the wrong question",
    )
    assert told["state"] == "aborted"
    assert "the wrong question" in told["reason"]
    assert "aborted" in terminal.typed("collection status collection.json").stdout
    assert post_report(collection.url, [report_of(collection)]).statuses == [410]


@pytest.mark.thorough
def test_tickets_in_parts_with_all_options(
    terminal: Any, shuffler: Running, tmp_path: Path
) -> None:
    """Three parts with tickets each, requested times, and one person in both roles noted."""
    plan(
        Sum(Integers(0, 9)),
        Target(1, 1e-6, 5),
        40,
        30,
        rounds=2,
        encoding="modular",
        protocols=["polya-shuffle"],
    ).save("plan.json")
    words = open_words(
        "--same-person",
        server=shuffler.url,
        keys=str(shuffler.keys),
        split="3",
        admission="tickets",
        tickets="35",
        tickets_file="tickets.txt",
        opens="10m",
        closes="1h",
        extends="2d",
        delay="30s",
        retention="7d",
        round="2",
    )
    before = int(time.time())
    parts = opened(terminal, *words)["parts"]
    assert sorted(terminal.files()) == sorted(
        [
            "plan.json",
            *(f"collection-{part}.json" for part in (1, 2, 3)),
            *(f"tickets-{part}.txt" for part in (1, 2, 3)),
        ]
    )
    seen: set[str] = set()
    for part, told in enumerate(parts, 1):
        terms = Collection.load(told["output"]).terms
        assert (terms.split, terms.round, terms.apart, terms.delay, terms.retention) == (
            (part, 3),
            2,
            False,
            30,
            7 * 86400,
        )
        assert 600 <= parse_time(terms.opens) - before <= 660
        assert parse_time(terms.closes) - parse_time(terms.opens) == 3600
        assert parse_time(terms.extends) - parse_time(terms.closes) == 2 * 86400
        tickets = Path(told["tickets_file"]).read_text().split()
        assert len(tickets) == 35
        assert all(re.fullmatch("[0-9a-f]{32}", ticket) for ticket in tickets)
        seen |= set(tickets)
    assert len(seen) == 105
    assert len({Collection.load(told["output"]).terms.hops[0].key for told in parts}) == 3


@pytest.mark.thorough
def test_a_refusal_of_the_shuffler_leaves_no_file(
    terminal: Any, plan_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A later hop takes no reports; tickets written for it are removed."""
    folder = tmp_path_factory.mktemp("behind")
    with running(folder, f"sqlite:///{folder / 'x.db'}", "--after", "http://127.0.0.1:9") as behind:
        words = open_words(
            server=behind.url,
            keys=str(behind.keys),
            admission="tickets",
            tickets="40",
            tickets_file="tickets.txt",
        )
        assert "this shuffler is placed after http://127.0.0.1:9" in terminal.refused(*words)


@pytest.mark.thorough
def test_a_shuffler_that_falls_silent_leaves_what_may_be_open(
    terminal: Any, plan_file: Path, shuffler: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the answer was lost the files stay, and the error says how to find out."""
    send = Operator.open

    def unheard(self: Operator, *rest: Any) -> None:
        send(self, *rest)
        raise NoAnswerError("it did not answer; try again.")

    monkeypatch.setattr(Operator, "open", unheard)
    plan(
        Sum(Integers(0, 8)),
        Target(1, 1e-6, 5),
        40,
        30,
        encoding="modular",
        protocols=["polya-shuffle"],
    ).save("plan.json")
    result = terminal(*open_words(server=shuffler.url, keys=str(shuffler.keys)))
    assert result.exit_code == 2
    assert "collection status collection.json shows its state" in result.stderr
    assert (
        opened(terminal, "collection", "status", "collection.json", "--keys", str(shuffler.keys))[
            "state"
        ]
        == "open"
    )


@pytest.mark.thorough
def test_people_have_another_address_than_the_operator(terminal: Any, shuffler: Running) -> None:
    """A proxy before a shuffler, or before the edges of a hub, forwards no call of the operator."""
    plan(
        Sum(Integers(0, 7)),
        Target(1, 1e-6, 5),
        40,
        30,
        encoding="modular",
        protocols=["polya-shuffle"],
    ).save("plan.json")
    words = ("--address", "https://Shuffler.example/")
    keys = ("--keys", str(shuffler.keys))
    opening = open_words(*words, server=shuffler.url, keys=str(shuffler.keys))
    assert "--address must be given once" in terminal.refused(*opening, *words)
    told = opened(terminal, *opening)
    collection = Collection.load("collection.json")
    assert collection.url == f"https://shuffler.example/v1/collections/{collection.digest}"
    assert told["join"] == f"https://shuffler.example/join/{collection.digest}"
    for command in (("status",), ("abort", "--reason", "no question")):
        name, *more = command
        assert "shuffler.example" in terminal.refused("collection", name, "collection.json", *keys)
        own = ("collection.json", *more, "--server", shuffler.url, *keys)
        told = opened(terminal, "collection", name, *own)
    assert told["state"] == "aborted"


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):  # nobody listens any more
                while True:
                    self.wfile.write(b" " * 1000)

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setattr("metricshuffle.collection.operator.control_api.MAX_ANSWER_BYTES", 10_000)
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(InputError, match="is too long for a shuffler"):
            Operator(f"http://127.0.0.1:{server.server_port}", "0" * 64).statuses()
        server.shutdown()

"""Checks of a client, which is run as a command against shufflers that misbehave."""

from __future__ import annotations

import json
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from metricshuffle.collection.conformance.misbehaving_shuffler import (
    ELSEWHERE,
    HANG_UP,
    PostAnswer,
    PostedReport,
    misbehaving_shuffler,
)
from metricshuffle.collection.conformance.requirements import (
    ConformanceLine,
    NotConforming,
    expect,
    lines_of,
)
from metricshuffle.collection.keys import AnalystKey, CollectionKeys, analyst_of
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.collection.terms import FORMAT, Collection, Hop, canonical, instant
from metricshuffle.errors import InputError
from metricshuffle.planning import plan
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Sum
from metricshuffle.spaces import Integers
from metricshuffle.tasks.task import Task

PLACES = ("{address}", "{digest}", "{outbox}", "{value}")
VALUE = 7
RUN_SECONDS = 180.0
RETRY_SECONDS = 3
EARLY_SECONDS = 0.05
"""Tolerance of the time between an answer and the next attempt."""
RUNS_AT_ONCE = 3
POLL_SECONDS = 0.02
ENC_BYTES = 32

Change = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True)
class Scenario:
    """How a shuffler behaves, and how often the command is run with the same outbox."""

    name: str
    answers: tuple[PostAnswer, ...] = (PostAnswer(204),)
    change: Change | None = None
    """What differs in the served collection."""
    is_pinned: bool = True
    """Whether the digest of the changed collection is the one given to the client."""
    runs: int = 1
    is_killed: bool = False
    """Whether the first run is killed when its report has arrived."""


def _changed(**fields: object) -> Change:
    return lambda terms: {**terms, **fields}


def _with_key(key: str) -> Change:
    return lambda terms: {**terms, "hops": [{**terms["hops"][0], "key": key}]}


BUSY = (PostAnswer(503, RETRY_SECONDS), PostAnswer(429, RETRY_SECONDS), PostAnswer(204))
HONEST = Scenario("a shuffler that follows the specification", runs=2)
HONEST_AGAIN = Scenario("another person at such a shuffler")
WAIT = Scenario("503, then 429, each with Retry-After, then 204", BUSY)
DROP = Scenario("no answer, then 500, then 204", (PostAnswer(HANG_UP), PostAnswer(500), BUSY[-1]))
SLOW = Scenario("204 after three seconds", (PostAnswer(204, delay=3.0),))
KILLED = Scenario(
    "no answer to a client that is killed and started again",
    (PostAnswer(204, delay=5.0), PostAnswer(204)),
    runs=2,
    is_killed=True,
)
CLOSED = Scenario("410", (PostAnswer(410),), runs=2)
UNREADABLE = Scenario("422", (PostAnswer(422),), runs=2)
REDIRECT = Scenario("a redirect to another address", (PostAnswer(307),))
OTHER_QUESTION = Scenario("bytes with another digest", change=_changed(round=2), is_pinned=False)
OTHER_KEY = Scenario(
    "another key in place of the shuffler's",
    change=_with_key(CollectionKeys(bytes(range(64))).party.key),
    is_pinned=False,
)
OTHER_FORMAT = Scenario("another format", change=_changed(format=f"{FORMAT}0"))
OTHER_SUITE = Scenario("another suite", change=_changed(suite="none"))
LOW_ORDER = Scenario("a key of low order", change=_with_key("00" * 32))
SCENARIOS = (
    HONEST,
    HONEST_AGAIN,
    WAIT,
    DROP,
    SLOW,
    KILLED,
    CLOSED,
    UNREADABLE,
    REDIRECT,
    OTHER_QUESTION,
    OTHER_KEY,
    OTHER_FORMAT,
    OTHER_SUITE,
    LOW_ORDER,
)


@dataclass
class ClientRun:
    """What a client did in a scenario."""

    scenario: Scenario
    collection: Collection
    keys: CollectionKeys
    analyst: AnalystKey
    exits: list[int] = field(default_factory=list)
    """Exit code of each run, negative if it was killed or did not end in time."""
    counts: list[int] = field(default_factory=list)
    """Number of posts after each run."""
    posts: list[PostedReport] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    output: str = ""

    def expect(self, condition: bool, observed: str) -> None:
        expect(condition, f"With {self.scenario.name}: {observed}")

    # Checks

    def check_nothing_sent(self) -> None:
        self.expect(not self.posts, f"{len(self.posts)} reports were sent.")
        self.expect(all(self.exits), "the command ended with exit code 0.")

    def check_same_bytes(self) -> None:
        bodies = {post.body for post in self.posts}
        self.expect(len(bodies) == 1, f"{len(bodies)} different reports were sent.")

    def check_sent_again(self) -> None:
        """Check that the same bytes are sent until they are stored; extra attempts are allowed."""
        self.check_same_bytes()
        needed = len(self.scenario.answers)
        self.expect(len(self.posts) >= needed, f"{len(self.posts)} of {needed} attempts.")
        self.expect(self.exits == [0], f"the exit code is {self.exits[0]}.")

    def check_resumed(self) -> None:
        """Check that the same bytes are sent after a kill, and then stored."""
        self.check_same_bytes()
        self.expect(len(self.posts) > 1, "the report was not sent again.")
        self.expect(self.exits[-1] == 0, f"the exit code is {self.exits[-1]}: {self.output}")

    def check_pauses(self) -> None:
        for answer, before, after in zip(
            self.scenario.answers, self.posts, self.posts[1:], strict=False
        ):
            pause = after.at - before.answered_at
            wanted = answer.retry_after or 0
            self.expect(
                pause >= wanted - EARLY_SECONDS,
                f"sent again after {pause:.2f} of {wanted} seconds.",
            )

    def check_success(self) -> None:
        self.expect(self.exits[0] == 0, f"the exit code is {self.exits[0]}: {self.output}")

    def check_no_success(self) -> None:
        self.expect(all(self.exits), "the command ended with exit code 0.")

    def check_once(self) -> None:
        self.expect(self.counts[-1] == self.counts[0] == 1, f"{self.counts[-1]} posts in two runs.")
        self.expect(self.exits[-1] != 0, "the second run ended with exit code 0.")

    def check_not_redirected(self) -> None:
        self.expect(ELSEWHERE not in self.paths, "the redirect was followed.")
        self.check_no_success()

    def check_size(self) -> None:
        size = self.collection.sealing.report_size
        for post in self.posts:
            self.expect(len(post.body) == size, f"a report has {len(post.body)} of {size} bytes.")
        self.expect(bool(self.posts), "no report was sent.")

    def check_sorted(self) -> None:
        payloads = self.payloads()
        self.expect(payloads == sorted(payloads), "the payloads are not sorted.")

    def check_opens(self) -> None:
        self.expect(len(self.payloads()) == self.collection.terms.messages, "too few payloads.")

    def check_distinct_keys(self, other: ClientRun) -> None:
        """Check that no encapsulated key occurs twice, in one report or in two."""
        keys = [key for run in (self, other) for key in run.encapsulated_keys()]
        self.expect(len(set(keys)) == len(keys), "two boxes have the same encapsulated key.")

    # What was sent

    def boxes(self) -> list[bytes]:
        """Inner boxes of the first report."""
        self.expect(bool(self.posts), "no report was sent.")
        try:
            _, boxes = self.collection.sealing.open_report(self.posts[0].body, self.keys.private)
        except NotOpened:
            raise NotConforming(f"With {self.scenario.name}: the report does not open.") from None
        return boxes

    def payloads(self) -> list[bytes]:
        try:
            return [
                self.collection.sealing.open_box(box, self.analyst.private) for box in self.boxes()
            ]
        except NotOpened:
            raise NotConforming(f"With {self.scenario.name}: a box does not open.") from None

    def encapsulated_keys(self) -> Iterator[bytes]:
        boxes = self.boxes()
        yield self.posts[0].body[:ENC_BYTES]
        yield from (box[:ENC_BYTES] for box in boxes)


@cache
def _task() -> Task:
    """Small task with several messages, which every client can follow."""
    return plan(
        Sum(Integers(0, 20)),
        Target(1, 1e-6, 5),
        40,
        30,
        encoding="modular",
        protocols=["polya-shuffle"],
    ).task


def _collection(url: str, keys: CollectionKeys, analyst: AnalystKey) -> Collection:
    now = time.time()
    return Collection.new(
        _task(),
        round=1,
        hops=[Hop(**keys.party.model_dump() | {"url": url})],
        analyst=analyst_of(analyst.public),
        opens=instant(now - 60),
        closes=instant(now + 86400),
        extends=instant(now + 86400),
        retention=86400,
    )


def run_scenario(scenario: Scenario, command: Sequence[str]) -> ClientRun:
    """Run a client in a scenario, with an empty outbox."""
    keys = CollectionKeys(secrets.token_bytes(64))
    analyst = AnalystKey.new()
    with misbehaving_shuffler() as shuffler, tempfile.TemporaryDirectory() as folder:
        collection = _collection(shuffler.url, keys, analyst)
        shuffler.served = collection.served
        shuffler.answers = scenario.answers
        digest = collection.digest
        if scenario.change is not None:
            shuffler.served = canonical(scenario.change(json.loads(collection.served)))
            digest = Collection(shuffler.served).digest if scenario.is_pinned else digest
        values = (shuffler.url, digest, str(Path(folder) / "outbox"), str(VALUE))
        words = [_filled(word, values) for word in command]
        run = ClientRun(scenario, collection, keys, analyst)
        for turn in range(scenario.runs):
            is_killed = scenario.is_killed and turn == 0
            run.exits.append(_exit_code(words, run, shuffler.posts if is_killed else None))
            run.counts.append(len(shuffler.posts))
        run.posts = list(shuffler.posts)
        run.paths = list(shuffler.paths)
    return run


def _filled(word: str, values: Sequence[str]) -> str:
    for place, value in zip(PLACES, values, strict=True):
        word = word.replace(place, value)
    return word


def _exit_code(words: Sequence[str], run: ClientRun, posts: Sequence[PostedReport] | None) -> int:
    """Run the command; with `posts` it is killed once there is one."""
    deadline = time.monotonic() + RUN_SECONDS
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - the command is the operator's
                words, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        except OSError as error:
            raise InputError(f"cannot run {words[0]}: {error.strerror or error}.") from None
        with process:
            while process.poll() is None:
                if posts or time.monotonic() > deadline:
                    process.kill()
                time.sleep(POLL_SECONDS)
        output.seek(0)
        run.output = " ".join(output.read().decode("utf-8", "replace").split())[-200:]
    return process.returncode


def check_client(command: Sequence[str]) -> Iterable[ConformanceLine]:
    """Run a client in all scenarios, and yield a line for each requirement.

    `command` contains {address}, {digest}, {outbox} and {value}; exit code 0 means stored.
    """
    missing = [place for place in PLACES if not any(place in word for word in command)]
    if missing:
        raise InputError(
            f"the command must contain {', '.join(PLACES)}, which are replaced; "
            f"{', '.join(missing)} is missing."
        )
    with ThreadPoolExecutor(RUNS_AT_ONCE) as pool:
        runs = list(pool.map(partial(run_scenario, command=list(command)), SCENARIOS))
    by_scenario = {run.scenario: run for run in runs}
    checks: list[tuple[str, Callable[[], None]]] = []
    for number, method, *scenarios in CHECKS:
        checks += [(number, partial(method, by_scenario[scenario])) for scenario in scenarios]
    honest = by_scenario[HONEST]
    checks += [
        ("B6", partial(honest.check_distinct_keys, by_scenario[WAIT])),
        ("L8", partial(honest.check_distinct_keys, by_scenario[HONEST_AGAIN])),
    ]
    return lines_of("client", checks)


CHECKS: tuple[tuple[str, Callable[[ClientRun], None], *tuple[Scenario, ...]], ...] = (
    ("B7", ClientRun.check_size, HONEST, WAIT),
    ("P2", ClientRun.check_sorted, HONEST, HONEST_AGAIN, WAIT, SLOW),
    ("C1", ClientRun.check_opens, HONEST, HONEST_AGAIN),
    ("C2", ClientRun.check_nothing_sent, OTHER_FORMAT, OTHER_SUITE),
    ("C6", ClientRun.check_nothing_sent, LOW_ORDER),
    ("L1", ClientRun.check_nothing_sent, OTHER_QUESTION, OTHER_KEY),
    ("L2", ClientRun.check_sent_again, WAIT, DROP, SLOW),
    ("L2", ClientRun.check_resumed, KILLED),
    ("L3", ClientRun.check_pauses, WAIT),
    ("L4", ClientRun.check_success, HONEST, SLOW),
    ("L4", ClientRun.check_no_success, CLOSED, UNREADABLE, REDIRECT),
    ("L5", ClientRun.check_same_bytes, CLOSED, UNREADABLE),
    ("L6", ClientRun.check_once, HONEST),
    ("L7", ClientRun.check_not_redirected, REDIRECT),
)

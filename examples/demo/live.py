"""A live round for the demo: a shuffler in a separate process, people who post one by one, a kill
in the middle, and an analyst.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricshuffle.cli.console import console as made_console
from metricshuffle.cli.console import show_progress
from metricshuffle.errors import InputError, require

if TYPE_CHECKING:
    from examples.demo.live_round import LiveRound, Posts
    from rich.console import Console

    from metricshuffle.collection.operator.control_api import Operator
    from metricshuffle.collection.terms import Collection
    from metricshuffle.tasks.task import Task

PEOPLE = 300
HONEST = 270
TWICE = 20
GARBAGE = 15
LATE = 5
OPEN_SECONDS = 5
KEPT_OPEN_SECONDS = 3600
MORE_SECONDS = 20
STARTING_SECONDS = 30.0
ENDING_SECONDS = 60.0
ORDER = ("open", "sealed", "shuffled", "erased", "released")


class ShufflerProcess:
    """`metricshuffle serve` on this machine, on a port that stays the same after a restart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = folder / "keys"
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.store = f"sqlite:///{folder / 'shuffler.db'}"
        self.url = ""

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "metricshuffle",
            "serve",
            "--store",
            self.store,
            "--keys",
            str(self.keys),
            "--listen",
            f"127.0.0.1:{self.port}",
            "--json",
        ]
        with open(self.folder / "serve.log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603 - ourselves
        assert self.process.stdout is not None  # noqa: S101 - it was asked for
        line = self.process.stdout.readline()
        if not line:
            said = (self.folder / "serve.log").read_text(encoding="utf-8").strip().splitlines()
            raise InputError(
                f"the shuffler of the demo did not start: {said[-1] if said else 'it said nothing'}"
            )
        self.url = json.loads(line)["listening"]
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """Kill the process at once, without warning."""
        self._ended(signal.SIGKILL)

    def stop(self) -> None:
        self._ended(signal.SIGTERM)

    def _ended(self, sent: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(sent)
        try:
            self.process.wait(STARTING_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None


@contextmanager
def shuffler() -> Iterator[ShufflerProcess]:
    with tempfile.TemporaryDirectory(prefix="metricshuffle-live-") as folder:
        running = ShufflerProcess(Path(folder))
        running.start()
        try:
            yield running
        finally:
            running.stop()


def live_round(console: Console | None = None, *, open_seconds: int = OPEN_SECONDS) -> LiveRound:
    """Run a whole round, with real processes and real sealing, in about as many seconds as it is
    open and a few more.
    """
    for module in ("httpx", "granian", "starlette"):
        require(module, "service")
    from examples.demo.live_round import LiveRound

    from metricshuffle.collection.analyst.analyst import Analyst
    from metricshuffle.collection.keys import AnalystKey, KeyFolder
    from metricshuffle.collection.operator.control_api import Operator
    from metricshuffle_papers.synthetic import snacks

    screen = made_console() if console is None else console
    began = time.monotonic()
    values = snacks(PEOPLE + LATE)
    with show_progress("Running a live round") as tell, shuffler() as server:
        task = _task()
        key = server.folder / "analyst.key"
        AnalystKey.new().save(key)
        operator = Operator(server.url, KeyFolder(server.keys).token)
        collection = _opened(task, operator, AnalystKey.load(key).public, open_seconds)
        opened = time.monotonic()
        tell("sealing reports")
        reports = _reports(collection, values)
        tell("posting them")
        posts, acknowledged, kept = _posted(server, collection, reports)
        tell("waiting for the closing time")
        states = _watched(collection, opened)
        late = _answers(collection, reports[PEOPLE:])
        posts.append(_counted("after the closing time", late))
        release = Analyst(key).collect(collection, output=server.folder / "release.json")
    played = LiveRound(
        people=PEOPLE,
        posts=posts,
        states=states,
        acknowledged=acknowledged,
        kept=kept,
        digest=collection.digest,
        truth=float(values[:PEOPLE].mean()),
        release=release,
        seconds=time.monotonic() - began,
    )
    _print(played, screen)
    return played


def _task() -> Task:
    from metricshuffle.planning import plan
    from metricshuffle.privacy.target import Target
    from metricshuffle.queries import Mean
    from metricshuffle_papers.synthetic import SNACKS

    target = Target(epsilon=1.0, delta=1e-6, distance=50)
    return plan(
        Mean(domain=SNACKS),
        target,
        PEOPLE,
        HONEST,
        encoding="modular",
        protocols=["polya-shuffle"],
        title="Snacks",
        question="How many kilocalories did you eat between meals today?",
    ).task


def _opened(task: Task, operator: Operator, analyst: str, seconds: int) -> Collection:
    """A collection that is open, of one shuffler and one analyst."""
    from metricshuffle.collection.keys import analyst_of
    from metricshuffle.collection.operator.control_api import Opening, open_at_all_hops

    now = int(time.time())
    opening = Opening(
        task,
        analyst_of(analyst, "the demo"),
        0,
        now,
        now + 1 + seconds,
        now + 1 + seconds + MORE_SECONDS,
        3600,
        apart=False,
    )
    collection = opening.collection(1, [operator.new_hop("the demo")])
    open_at_all_hops([operator], collection, ())
    return collection


def _reports(collection: Collection, values: Any) -> list[bytes]:
    from metricshuffle.collection.client.client import Client

    client = Client(collection, believe=True)  # (it was verified when it was opened)
    return [client.report(int(value)) for value in values]


def _posted(
    server: ShufflerProcess, collection: Collection, reports: Sequence[bytes]
) -> tuple[list[Posts], int, int]:
    """Post all reports and kill the shuffler meanwhile; return the answers, the acknowledged and
    the stored reports.
    """
    answered: list[int] = []
    counts: list[int] = []
    with ThreadPoolExecutor(1) as aside:
        killing = aside.submit(_killed, server, collection, answered, counts)
        _answers(collection, reports[:PEOPLE], answered)
        killing.result()
    twice = _answers(collection, reports[:TWICE])
    garbage = _answers(collection, [os.urandom(len(reports[0])) for _ in range(GARBAGE)])
    posts = [
        _counted("of different people", Counter(answered)),
        _counted("the same bytes again", twice),
        _counted("random bytes", garbage),
    ]
    acknowledged, kept = counts
    return posts, acknowledged, kept


def _killed(
    server: ShufflerProcess, collection: Collection, answered: Sequence[int], counts: list[int]
) -> None:
    """Kill the shuffler when half of the people are through, count what it had acknowledged and
    what it has, and start it again.
    """
    from metricshuffle.collection.store.factory import connect_store

    end = time.monotonic() + ENDING_SECONDS
    while len(answered) < PEOPLE // 2 and time.monotonic() < end:
        time.sleep(0.001)
    server.kill()
    acknowledged = answered.count(204)
    store = connect_store(server.store)
    row = store.row(collection.digest)
    store.close()
    counts += [acknowledged, 0 if row is None else row.reports]
    server.start()


def _answers(
    collection: Collection, reports: Sequence[bytes], answered: list[int] | None = None
) -> Counter[int]:
    """Post reports and count the answers; an unanswered report is sent again unchanged."""
    import httpx

    answered = [] if answered is None else answered
    end = time.monotonic() + ENDING_SECONDS
    with httpx.Client(timeout=STARTING_SECONDS) as client:
        for report in reports:
            while True:
                try:
                    answered.append(
                        client.post(f"{collection.url}/reports", content=report).status_code
                    )
                    break
                except httpx.TransportError:
                    if time.monotonic() > end:
                        raise InputError(
                            "the shuffler of the demo does not answer any more; try again."
                        ) from None
                    time.sleep(0.05)
    return Counter(answered)


MEANING = {204: "stored", 410: "closed", 422: "does not open"}


def _counted(kind: str, answers: Counter[int]) -> Posts:
    from examples.demo.live_round import Posts

    told = ", ".join(
        f"{count:,} x {code} {MEANING.get(code, '')}".strip()
        for code, count in sorted(answers.items())
    )
    return Posts(kind, answers.total(), told)


def _watched(collection: Collection, opened: float) -> list[tuple[str, float]]:
    """When each state was first seen; states passed between two checks get the time of the later
    one.
    """
    import httpx

    seen: list[tuple[str, float]] = [("open", 0.0)]
    end = time.monotonic() + ENDING_SECONDS
    with httpx.Client(timeout=STARTING_SECONDS) as client:
        while seen[-1][0] != ORDER[-1]:
            if time.monotonic() > end:
                raise InputError(
                    "the live round of the demo did not end in time; is this machine very "
                    "busy? Try again."
                )
            told = client.get(f"{collection.url}/state").json()
            if told["state"] not in ORDER:
                raise InputError(
                    f"the live round of the demo was {told['state']}: {told.get('reason', '')}"
                )
            passed = ORDER[ORDER.index(seen[-1][0]) + 1 : ORDER.index(told["state"]) + 1]
            seen += [(state, time.monotonic() - opened) for state in passed]
            time.sleep(0.02)
    return seen


def _print(played: LiveRound, console: Console) -> None:
    unit = played.release.query.unit
    console.print(
        f"\n[bold]A live round[/bold]: {played.people:,} people post sealed reports to a "
        "shuffler, which is killed in the middle "
        f"({played.acknowledged:,} acknowledged, {played.kept:,} kept).\n",
        highlight=False,
    )
    for posts in played.posts:
        console.print(f"  {posts.kind:37} {posts.sent:>4,}  {posts.answer}", highlight=False)
    console.print(
        f"\n  {' -> '.join(state for state, _ in played.states)}; mean "
        f"[bold]{played.release.value:.1f} {unit}[/bold] "
        f"(true {played.truth:.1f}) in {played.seconds:.0f} s",
        highlight=False,
    )


def kept_open(console: Console) -> None:
    """`demo --live --keep`: a collection that stays open, with its join page, until Ctrl-C."""
    for module in ("httpx", "granian", "starlette"):
        require(module, "service")
    from metricshuffle.collection.keys import AnalystKey, KeyFolder
    from metricshuffle.collection.operator.control_api import Operator

    with shuffler() as server:
        operator = Operator(server.url, KeyFolder(server.keys).token)
        collection = _opened(_task(), operator, AnalystKey.new().public, KEPT_OPEN_SECONDS)
        console.print(
            f"[bold]Join:[/bold] {server.url}/join/{collection.digest}",
            highlight=False,
            soft_wrap=True,
        )
        console.print(
            "A collection of simulated snacks that nobody will collect; Ctrl-C stops it "
            "and deletes everything.",
            highlight=False,
        )
        assert server.process is not None  # noqa: S101 - it was started
        server.process.wait()

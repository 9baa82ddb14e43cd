"""Small collections with piles, their shufflers in this process, and the analyst's answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from tests.collection.hop_before import Answer, HopBefore, hop_before
from tests.collection.rounds import Round

import metricshuffle as ms
from metricshuffle.collection.analyst.collector import Collecting
from metricshuffle.collection.analyst.download import FetchedOutput, OutputAnnouncement
from metricshuffle.collection.keys import AnalystKey, KeyFolder, analyst_of
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.terms import Collection, Hop, Party, instant
from metricshuffle.queries.query import Query
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.task import Task

PEOPLE = 40
START = 2_000_000_000.0
LABELS = ["a", "b", "c", "d"]

QUERIES: dict[str, tuple[Query, dict[str, Any]]] = {
    "labels": (ms.Histogram(ms.Categories(LABELS)), {}),
    "thresholds": (ms.Histogram(ms.Integers(0, 9)), {"spread": "spiky"}),
    "items": (ms.UserHistogram(ms.Users(ms.Space(ms.Integers(0, 4)), 3)), {}),
}


@cache
def piled_task(kind: str, epsilon: float = 3.0) -> Task:
    """Task in which a person sends one message, nine, or three in each of four piles."""
    query, choices = QUERIES[kind]
    if "floor" in query.options:
        choices = {**choices, "floor": "never"}
    target = ms.Target(epsilon, 1e-3, 1)
    plan = ms.plan(query, target, 400, protocols=["shuffler-noise"], **choices)
    return plan.task


def piled_round(
    hops: Sequence[tuple[Party, str]], kind: str = "labels", now: float = START, **terms: Any
) -> Round:
    analyst = AnalystKey.new()
    parties = tuple(
        Hop(**party.model_dump(exclude={"name", "url"}), url=url) for party, url in hops
    )
    closes = instant(now + 60)
    content: dict[str, Any] = {
        "round": 1,
        "hops": parties,
        "analyst": analyst_of(analyst.public),
        "opens": instant(now - 1),
        "closes": closes,
        "extends": closes,
        "retention": 3600,
        **terms,
    }
    return Round(Collection.new(piled_task(kind), **content), analyst)


def values_of(kind: str, people: int) -> list[object]:
    """Uneven values of people."""
    if kind == "labels":
        return [LABELS[min(number % 7, 3)] for number in range(people)]
    if kind == "items":
        return [[number % 5, 2, 2] for number in range(people)]
    return [min(number % 13, 9) for number in range(people)]


def payloads_of(made: Round, values: Sequence[object]) -> list[list[bytes]]:
    """Payloads of people with these values, as the Python client makes them."""
    messages = made.collection.task.randomize(list(values), Randomness.system()).messages
    return [
        [message.tobytes() for message in person]
        for person in made.collection.form.split_messages(messages)
    ]


def reports_of(made: Round, values: Sequence[object]) -> list[bytes]:
    return [made.report(payloads=payloads) for payloads in payloads_of(made, values)]


def runs_of(made: Round, output: bytes, layer: int = 0) -> list[list[bytes]]:
    """Boxes of each pile of an output."""
    size = made.sealing.box_size(layer)
    piles = made.sealing.piles
    lengths = np.frombuffer(output[: 8 * piles], "<u8").tolist()
    assert len(output) == 8 * piles + size * sum(lengths)
    runs = []
    start = 8 * piles
    for length in lengths:
        boxes = [output[start + size * place :][:size] for place in range(length)]
        start += size * length
        runs.append(boxes)
    return runs


def joined_runs(runs: Sequence[Sequence[bytes]]) -> bytes:
    """Output of these runs, sorted or not."""
    head = b"".join(len(run).to_bytes(8, "little") for run in runs)
    return head + b"".join(box for run in runs for box in run)


def counts_of(made: Round, output: bytes) -> list[list[int]]:
    """Number of messages of every part, as the analyst reads them."""
    protocol = made.collection.task.protocol
    counts = []
    for pile, run in enumerate(runs_of(made, output)):
        opened = [made.sealing.open_box(box, made.analyst.private, pile=pile) for box in run]
        parts = [int.from_bytes(payload, "little") for payload in opened]
        counts.append(np.bincount(parts, minlength=protocol.sizes[pile]).tolist())  # type: ignore[attr-defined]
    return counts


def released(
    made: Round, output: bytes, folder: Path, people: int = PEOPLE, left_out: int = 0
) -> Release:
    """The analyst's answer from an output."""
    announced = OutputAnnouncement(
        made.digest, people, left_out, hashlib.sha256(output).hexdigest()
    )
    path = folder / "output.boxes"
    path.write_bytes((json.dumps(asdict(announced)) + "\n").encode() + output)
    file = FetchedOutput.kept(path, made.collection)
    assert file is not None
    return Collecting(made.analyst, [made.collection], 1).release([file])


def answer_of(output: bytes, people: int = PEOPLE) -> Answer:
    """How a hop hands over an output."""
    digest = hashlib.sha256(output).hexdigest()
    headers = {"ETag": f'"{digest}"', "X-People": str(people), "X-Left-Out": "0"}
    return Answer(200, output, headers)


@dataclass
class PiledChain:
    """Shufflers of a chain in this process, and their collection."""

    made: Round
    shufflers: list[Shuffler]
    links: list[HopBefore]
    now: list[float]

    def close(self) -> None:
        self.now[0] = START + 60

    def output(self, place: int) -> bytes:
        return b"".join(self.shufflers[place].output(self.made.digest))

    def reason(self, place: int) -> str:
        row = self.shufflers[place].store.row(self.made.digest)
        assert row is not None
        return f"{row.state}: {row.reason}"

    def run(self, people: int = PEOPLE) -> bytes:
        """Drive all hops to their release; return the output of the last one."""
        self.close()
        for place, shuffler in enumerate(self.shufflers):
            if place:
                self.links[place - 1].get = partial(answer_of, self.output(place - 1), people)
            assert shuffler.advance(self.made.digest) == "released", self.reason(place)
        return self.output(len(self.shufflers) - 1)


@contextmanager
def piled_chain(
    folder: Path, hops: int = 1, kind: str = "labels", **terms: Any
) -> Iterator[PiledChain]:
    now = [START]
    with ExitStack() as stack:
        links = [stack.enter_context(hop_before()) for _ in range(hops - 1)]
        shufflers = []
        for place in range(hops):
            store = connect_store(f"sqlite:///{folder / f'{place}.db'}", lambda: now[0])
            stack.callback(store.close)
            keys = KeyFolder.at(folder / f"keys{place}")
            shufflers.append(Shuffler(store, keys, after=links[place - 1].url if place else None))
        urls = [*(link.url for link in links), "http://127.0.0.1:1"]
        parties = [shuffler.new_party() for shuffler in shufflers]
        made = piled_round(list(zip(parties, urls, strict=True)), kind, **terms)
        for shuffler in shufflers:
            assert shuffler.open(made.collection.served)
        yield PiledChain(made, shufflers, links, now)

"""A hop that answers without end, or drop by drop: whoever asks it is neither held up nor filled up by that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import pytest
from tests.service.conftest import Clock
from tests.service.hop_before import Answer, HopBefore, chained, handed_over, hop_before
from tests.service.rounds import new_round

from metricshuffle.collection.analyst.download import Fetching
from metricshuffle.collection.keys import CollectionKeys, KeyFolder
from metricshuffle.collection.shuffler import upstream as chains
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.upstream import UpstreamUnreachable
from metricshuffle.collection.store.factory import connect_store

START = 2_000_000_000.0
MANY = 64 * 2**20
"""Bytes after which an endless answer of these tests ends."""


@pytest.fixture
def hop() -> Iterator[HopBefore]:
    with hop_before() as hop:
        yield hop


@pytest.fixture
def second(tmp_path: Path, clock: Clock, hop: HopBefore) -> Iterator[Shuffler]:
    clock.stop(START)
    store = connect_store(f"sqlite:///{tmp_path / 'second.db'}", clock)
    yield Shuffler(store, KeyFolder.at(tmp_path / "second"), after=hop.url)
    store.close()


def endless(sent: list[int]) -> Callable[[], Iterator[bytes]]:
    """Blanks, and how many bytes of them somebody was there to take."""

    def pieces() -> Iterator[bytes]:
        for piece in repeat(b" " * 2**16, MANY // 2**16):
            yield piece
            sent.append(len(piece))

    return pieces


def test_a_hop_that_sends_drop_by_drop_is_not_listened_to(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked how late it is with every drop, not with every full chunk: that would be never."""
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    whole = handed_over(chain.boxes)

    def drops() -> Iterator[bytes]:
        for byte in whole.body[:400]:
            time.sleep(0.01)
            yield bytes([byte])

    monkeypatch.setattr(chains, "BASE_DOWNLOAD_SECONDS", 0.2)
    monkeypatch.setattr(chains, "MIN_BYTES_PER_SECOND", 10**12)
    hop.get = lambda: Answer(200, headers=whole.headers, pieces=drops)
    begun = time.monotonic()
    with pytest.raises(UpstreamUnreachable, match="too slow"):
        second.advance(chain.made.digest)
    assert time.monotonic() - begun < 2  # (all drops take four seconds)


@pytest.mark.parametrize("more", [0, 7])
def test_a_message_that_is_twice_where_two_pieces_meet_is_seen(
    second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock, more: int
) -> None:
    """The first piece ends with a box, or some bytes behind one; the next box is the same again."""
    chain = chained(second, hop, tmp_path / "first", START)
    clock.ahead = 60
    boxes = [*chain.boxes[:10], chain.boxes[9], *chain.boxes[11:]]
    whole = handed_over(boxes)
    cut = 10 * len(boxes[0]) + more

    def pieces() -> Iterator[bytes]:
        yield whole.body[:cut]
        time.sleep(0.2)
        yield whole.body[cut:]

    hop.get = lambda: Answer(200, headers=whole.headers, pieces=pieces)
    assert second.advance(chain.made.digest) == "aborted"
    assert "twice, or out of order" in second.status(chain.made.digest).reason  # type: ignore[union-attr]


def test_a_reason_without_end_is_no_reason(second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock) -> None:
    chain, sent = chained(second, hop, tmp_path / "first", START), list[int]()
    clock.ahead = 60
    hop.get = lambda: Answer(410, pieces=endless(sent))
    assert second.advance(chain.made.digest) == "aborted"
    assert second.status(chain.made.digest).reason == "the shuffler before this one gave up: it does not say why."  # type: ignore[union-attr]
    assert sum(sent) < MANY / 2  # (what lies in buffers of the system counts as taken)


def test_an_answer_without_end_to_what_is_owed_is_not_read(second: Shuffler, hop: HopBefore, tmp_path: Path, clock: Clock) -> None:
    chain, sent = chained(second, hop, tmp_path / "first", START), list[int]()
    clock.ahead = 60
    hop.get, hop.delete = lambda: handed_over(chain.boxes), lambda: Answer(200, pieces=endless(sent))
    assert second.advance(chain.made.digest) == "released"
    assert [method for method, *_ in hop.asked] == ["GET", "DELETE"]
    assert sum(sent) < MANY / 2


def test_an_answer_without_end_to_the_analyst_is_not_read(hop: HopBefore) -> None:
    sent = list[int]()
    collection = new_round([(CollectionKeys(b"k" * 64).party, hop.url)]).collection
    hop.delete = lambda: Answer(410, pieces=endless(sent))
    assert asyncio.run(Fetching(collection, "token", patience=0).acknowledge("0" * 64)) == ""
    assert sum(sent) < MANY / 2

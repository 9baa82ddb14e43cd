"""Analyst that is killed, repeats a call, or uses several processes: one release."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.collection.running import run_aside
from tests.collection.stand_in import StandIn, standing_in
from tests.collection.test_analyst import released

import metricshuffle as ms
from metricshuffle.collection.analyst.analyst import Analyst
from metricshuffle.collection.analyst.decryption_pool import (
    BOXES_PER_PART,
    MAX_BOXES_HERE,
    SealedPart,
    open_boxes,
)
from metricshuffle.collection.analyst.download import NotReleased
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.sealed_boxes import BoxFormat, PrivateKey
from metricshuffle.errors import InputWarning, PlanError
from metricshuffle.files import locked
from metricshuffle.tasks.release import Release


@pytest.fixture
def shuffler() -> Iterator[StandIn]:
    with standing_in() as stand_in:
        yield stand_in


@pytest.fixture
def key() -> AnalystKey:
    return AnalystKey.new()


# Killed and called again


def test_what_was_collected_and_destroyed_is_still_there(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    collection = released(shuffler, key)
    first = Analyst(key).collect(collection, tmp_path / "release.json")
    shuffler.release_status = 410
    assert str(Analyst(key).collect(collection, tmp_path / "release.json")) == str(first)
    with pytest.raises(NotReleased, match="nothing to collect"):
        Analyst(key).collect(collection, tmp_path / "other.json")


def test_a_shuffler_that_cannot_be_told(shuffler: StandIn, key: AnalystKey, tmp_path: Path) -> None:
    """The release counts; boxes stay until they are acknowledged and are not fetched again."""
    collection = released(shuffler, key)
    broken = [True]

    def hang_up() -> None:
        if broken[0]:
            raise ConnectionResetError

    shuffler.on_delete = hang_up
    with pytest.warns(InputWarning, match="did not get the acknowledgement of the release"):
        first = Analyst(key, patience=0.1).collect(collection, tmp_path / "release.json")
    assert len(list(tmp_path.glob("*.boxes"))) == 1
    broken[0] = False
    fetched = shuffler.asked.count(f"/v1/collections/{collection.digest}/release")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(Analyst(key).collect(collection, tmp_path / "release.json")) == str(first)
    assert shuffler.asked.count(f"/v1/collections/{collection.digest}/release") == fetched
    assert list(tmp_path.glob("*.boxes")) == []


def test_boxes_that_were_changed_since_are_not_believed(
    shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    collection = released(shuffler, key)
    files = run_aside(Analyst(key).collecting(collection).fetched(tmp_path / "release.json"))
    data = bytearray(files[0].path.read_bytes())
    data[-1] ^= 1
    files[0].path.write_bytes(bytes(data))
    with pytest.raises(PlanError, match="was changed since it was fetched"):
        Analyst(key).collect(collection, tmp_path / "release.json")
    files[0].path.write_bytes(bytes(data)[:-10])  # cut short: it is fetched again
    assert Analyst(key).collect(collection, tmp_path / "release.json").reports == 30


def collecting(folder: Path) -> subprocess.Popen[str]:
    words = [
        "collect",
        "collection.json",
        "--analyst-key",
        "analyst.key",
        "--output",
        "release.json",
        "--quiet",
    ]
    command = [sys.executable, "-m", "metricshuffle", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "point", ["while it is fetched", "when it was fetched", "before it is acknowledged"]
)
def test_killed_at_any_point_the_same_command_goes_on(
    point: str, shuffler: StandIn, key: AnalystKey, tmp_path: Path
) -> None:
    """kill -9: nothing partial, nothing counted twice, and durable data is not fetched again."""
    collection = released(shuffler, key)
    collection.save(tmp_path / "collection.json")
    key.save(tmp_path / "analyst.key")
    reached = threading.Event()
    going_on = threading.Event()

    def stop() -> None:
        reached.set()
        going_on.wait(60)

    ledger = tmp_path / "releases.ledger"
    if point == "while it is fetched":
        shuffler.on_release = stop
    elif point == "before it is acknowledged":
        shuffler.on_delete = stop
    with locked(ledger) if point == "when it was fetched" else locked(tmp_path / "nothing"):
        process = collecting(tmp_path)
        try:
            for _ in range(1200):
                if reached.is_set() or list(tmp_path.glob("*.boxes")):
                    break
                time.sleep(0.05)
            if point == "before it is acknowledged":
                assert reached.wait(60)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(30)
        finally:
            process.kill()
            process.communicate()
    assert bool(list(tmp_path.glob("*.boxes"))) == (point != "while it is fetched")
    assert (tmp_path / "release.json").exists() == (point == "before it is acknowledged")
    going_on.set()
    shuffler.on_release = shuffler.on_delete = lambda: None
    fetched = shuffler.asked.count(f"/v1/collections/{collection.digest}/release")
    process = collecting(tmp_path)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "sum = " in out
    again = shuffler.asked.count(f"/v1/collections/{collection.digest}/release") - fetched
    assert again == (1 if point == "while it is fetched" else 0)
    assert len(ms.Budget(ledger).releases) == 1
    assert Release.load(tmp_path / "release.json").reports == 30
    assert list(tmp_path.glob("*.boxes")) == []


# Opening in processes


@pytest.mark.thorough
def test_processes_open_what_one_opens() -> None:
    """Damaged boxes are detected in any process; the key is in no process list."""
    private = PrivateKey.new()
    sealing = BoxFormat(b"d" * 32, 9, 10)
    public = private.public
    some = [public.sealed(index.to_bytes(9, "little"), sealing.info(0)) for index in range(2000)]
    for index in range(0, 2000, 100):
        some[index] = secrets.token_bytes(57)
    boxes = [some[start : start + 2000] for start in range(0, 2000, 2000)] * (
        MAX_BOXES_HERE // 2000 + 1
    )
    parts = [(0, b"".join(part)) for part in boxes]
    count = sum(map(len, boxes))
    assert count > MAX_BOXES_HERE
    here = sorted(open_boxes(sealing, private, parts, count, 1))
    apart = sorted(open_boxes(sealing, private, parts, count, 2))
    assert here == apart
    assert all(
        payloads[9 * 100 : 9 * 101] == bytes(9) and good[100] == 0 and good[101] == 1
        for _, payloads, good in apart
    )
    assert all(sum(good) == 1980 for _, _, good in apart)
    assert BOXES_PER_PART * 57 < 2**20


@pytest.mark.thorough
def test_processes_open_the_boxes_of_every_pile() -> None:
    private = PrivateKey.new()
    sealing = BoxFormat(b"d" * 32, 2, 4, piles=2)
    count = MAX_BOXES_HERE // 100 + 1
    parts = []
    for pile in (0, 1):
        boxes = [sealing.box(bytes([pile, place]), pile, [private.public]) for place in range(99)]
        boxes.append(sealing.box(b"no", 1 - pile, [private.public]))  # of the other pile
        parts += [(pile, b"".join(boxes))] * (count // 2 + 1)
    apart = list(open_boxes(sealing, private, parts, 100 * len(parts), 2))
    assert len(apart) == len(parts)
    for pile, payloads, good in apart:
        assert good == b"\1" * 99 + b"\0"
        assert payloads[:-2] == b"".join(bytes([pile, place]) for place in range(99))


@pytest.mark.thorough
def test_what_goes_wrong_while_boxes_are_read_ends_the_processes() -> None:
    private = PrivateKey.new()
    sealing = BoxFormat(b"d" * 32, 9, 10)

    def broken() -> Iterator[SealedPart]:
        yield 0, private.public.sealed(bytes(9), sealing.info(0)) * 100
        raise PlanError("as a test wants it.")

    with pytest.raises(PlanError, match="as a test wants it"):
        list(open_boxes(sealing, private, broken(), MAX_BOXES_HERE + 1, 2))

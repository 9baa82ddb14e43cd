"""Mixers as processes, killed by kill -9 at every stage, beside a shuffler that releases."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.collection.mixers import need_objects
from tests.collection.running import ROOT, Running, load_task, post_report, report_of
from tests.collection.test_many_hosts import output_of_one_process

from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.mixer.object_store import ObjectStore
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.terms import Collection

pytestmark = pytest.mark.thorough
SOON = 120.0
KILLED = [
    "claimed",
    "cut",
    "cut written",
    "cut index written",
    "cut finished",
    "sort",
    "sort index written",
    "sort finished",
]


def started_mixer(shuffler: Running, objects: str, point: str = "never") -> subprocess.Popen[bytes]:
    """Mixer process that is killed at a point of its first task of that stage."""
    words = ["mix", "--store", shuffler.store, "--objects", objects, "--keys", str(shuffler.keys)]
    program = [sys.executable, "-m", "tests.collection.killed_server", point, *words, "--json"]
    with open(shuffler.folder / "stderr.txt", "ab") as errors:
        return subprocess.Popen(program, cwd=ROOT, stderr=errors, stdout=subprocess.DEVNULL)


@contextmanager
def mixing_shuffler(folder: Path, store: str, objects: str) -> Iterator[Running]:
    need_objects()
    shuffler = Running(folder, store, ("--objects", objects, "--mixers-from", "1"))
    shuffler.kill_at = "never"  # its tasks are small
    folder.mkdir(parents=True, exist_ok=True)
    try:
        shuffler.start()
        yield shuffler
    finally:
        if shuffler.process.poll() is None:
            shuffler.end(signal.SIGKILL)


def released(shuffler: Running, collection: Collection, analyst: AnalystKey) -> bytes:
    end = time.monotonic() + SOON
    while True:
        answer = httpx.get(
            f"{shuffler.url}/v1/collections/{collection.digest}/release",
            headers={"Authorization": f"Bearer {analyst.token}"},
        )
        if answer.status_code == 200:
            return answer.content
        assert answer.status_code == 425, answer.text
        assert time.monotonic() < end, shuffler.log
        time.sleep(0.2)


def test_mixers_are_killed_at_every_stage_and_the_bytes_are_those_of_one_process(
    new_postgres_url: Callable[[], str], tmp_path: Path
) -> None:
    objects = f"file://{tmp_path}/objects"
    analyst = AnalystKey.new()
    mixers = []
    with mixing_shuffler(tmp_path / "shuffler", new_postgres_url(), objects) as shuffler:
        collection = shuffler.opened(load_task(10), lasts=10, analyst=analyst)
        reports = [report_of(collection) for _ in range(400)]
        statuses = post_report(f"{shuffler.url}/v1/collections/{collection.digest}", reports, 16)
        assert set(statuses.statuses) == {204}
        expected = output_of_one_process(tmp_path / "one", shuffler.keys, collection, reports)
        try:
            mixers = [started_mixer(shuffler, objects, point) for point in KILLED]
            mixers += [started_mixer(shuffler, objects)]
            assert released(shuffler, collection, analyst) == expected
            codes = [mixer.poll() for mixer in mixers[:-1]]
            assert -signal.SIGKILL in codes, codes  # which of them get a task is a race
            mixers[-1].terminate()
            assert mixers[-1].wait(30) == 128 + signal.SIGTERM
        finally:
            for mixer in mixers:
                mixer.kill()
                mixer.wait()
        assert ObjectStore(objects).names() == []
        assert not list(shuffler.keys.glob("*.key"))
        store = connect_store(shuffler.store)
        assert store.mix_tasks.attempt(collection.digest) is None
        store.close()


def test_an_edge_has_no_object_store_and_a_mixer_needs_a_folder_of_keys(tmp_path: Path) -> None:
    need_objects()
    words = [sys.executable, "-m", "metricshuffle"]
    mix = ["mix", "--store", f"sqlite:///{tmp_path}/a.db", "--objects", f"file://{tmp_path}/o"]
    answer = subprocess.run(
        [*words, *mix, "--keys", str(tmp_path / "none")], capture_output=True, text=True
    )
    assert answer.returncode == 2
    assert "is not the folder of a shuffler's keys" in answer.stderr
    assert not (tmp_path / "a.db").exists()
    edge = ["serve", "--role", "edge", "--store", "postgresql://x", "--objects", "s3://bucket"]
    answer = subprocess.run([*words, *edge], capture_output=True, text=True)
    assert answer.returncode == 2
    assert "an edge has none" in answer.stderr

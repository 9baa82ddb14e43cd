"""Running shuffler whose machine clock is set, and the operator's commands."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.collection.running import (
    Running,
    environment,
    load_task,
    post_report,
    report_of,
    running,
)

from metricshuffle.collection.terms import Collection

pytestmark = pytest.mark.thorough
HOUR = 3600
HONEST = 4
SET = """
import os, time
real = time.time
def ahead():
    with open(os.environ["AHEAD"]) as file:
        return float(file.read() or 0)
time.time = lambda: real() + ahead()
"""
"""Run by Python before anything else: the clock is as far ahead as a file says."""


class Machine:
    """A shuffler on a machine whose clock can be set."""

    def __init__(self, shuffler: Running, ahead: Path) -> None:
        self.shuffler = shuffler
        self._ahead = ahead

    def set_clock(self, ahead: float) -> None:
        part = self._ahead.with_suffix(".part")
        part.write_text(str(ahead))
        part.replace(self._ahead)

    def opened(self, number: int, reports: int, lasts: float, **terms: Any) -> Collection:
        collection = self.shuffler.opened(
            load_task(1, honest=HONEST), lasts=lasts, round=number, **terms
        )
        assert (
            post_report(collection.url, [report_of(collection) for _ in range(reports)], 4).statuses
            == [204] * reports
        )
        return collection

    def state(self, collection: Collection) -> str:
        return str(self.shuffler.operator.status(collection.digest)["state"])

    def wait_for(self, collection: Collection, state: str) -> None:
        end = time.monotonic() + 40
        while self.state(collection) != state:
            assert time.monotonic() < end, (self.state(collection), self.shuffler.log)
            time.sleep(0.1)

    def command(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "metricshuffle",
                "collection",
                *words,
                "--keys",
                str(self.shuffler.keys),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment(),
        )
        return done.returncode, done.stdout + done.stderr

    def clock(self, action: str) -> tuple[int, str]:
        return self.command("clock", action, "--server", self.shuffler.url)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "sitecustomize.py").write_text(SET)
    (tmp_path / "ahead").write_text("0")
    monkeypatch.setenv("AHEAD", str(tmp_path / "ahead"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "set"))
    with running(tmp_path / "shuffler", f"sqlite:///{tmp_path / 'shuffler.db'}") as shuffler:
        yield Machine(shuffler, tmp_path / "ahead")


def test_hours_ahead_for_four_seconds(machine: Machine) -> None:
    released = machine.opened(1, HONEST, 2, retention=2 * HOUR)
    machine.wait_for(released, "released")
    enough = machine.opened(2, HONEST, 59 * 60)
    few = machine.opened(3, 2, 59 * 60)
    machine.set_clock(4 * HOUR)
    time.sleep(4)
    assert post_report(enough.url, [report_of(enough)], 1).statuses == [503]
    assert "hours ahead" in machine.shuffler.operator.status(enough.digest)["trouble"]
    machine.set_clock(0)
    time.sleep(2)
    assert [machine.state(collection) for collection in (released, enough, few)] == [
        "released",
        "open",
        "open",
    ]
    assert post_report(enough.url, [report_of(enough)], 1).statuses == [204]
    assert machine.state(machine.opened(4, HONEST, HOUR)) == "open"


def test_what_the_operator_confirms_and_corrects(machine: Machine, tmp_path: Path) -> None:
    made = machine.opened(1, HONEST, 59 * 60, retention=20 * HOUR)
    (tmp_path / "collection.json").write_bytes(made.served)
    assert machine.clock("confirm")[0] != 0
    machine.set_clock(4 * HOUR)
    machine.shuffler.end()
    machine.shuffler.start()  # which does not make it right
    time.sleep(1.5)
    code, shown = machine.clock("show")
    assert code == 0
    assert "is not believed" in shown
    assert machine.state(made) == "open"
    code, confirmed = machine.clock("confirm")
    assert code == 0
    assert "and is believed" in confirmed
    machine.wait_for(made, "released")
    machine.set_clock(0)
    with pytest.raises(Exception, match="open one that closes later"):
        machine.opened(2, 0, HOUR)
    code, corrected = machine.clock("correct")
    assert code == 0, corrected
    assert "corrected the time, which was 4.0 hours ahead" in corrected.replace("\n", " ")
    assert machine.state(machine.opened(2, HONEST, HOUR)) == "open"
    public = httpx.get(f"{made.url}/state").json()
    assert [note.split()[2] for note in public["clock"]] == ["confirmed", "corrected"]
    code, status = machine.command("status", str(tmp_path / "collection.json"))
    assert code == 0
    assert all(
        words in status
        for words in (
            "sealed at 2",
            "released at 2",
            "The operator confirmed the clock",
            "The operator corrected",
        )
    )
    code, told = machine.command("status", str(tmp_path / "collection.json"), "--json")
    assert json.loads(told)["clock"] == public["clock"]
    name = made.digest[:16]
    lines = [line for line in machine.shuffler.log.splitlines() if name in line]
    assert any("was opened" in line for line in lines)
    assert any("is sealed, after it was open" in line for line in lines)

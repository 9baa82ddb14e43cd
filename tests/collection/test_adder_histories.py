"""Random histories of sums: lost deliveries, clocks that differ, ends at any point, roll-backs."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from tests.collection.local_adders import Adders, LocalAdder
from tests.collection.sums import sealed_value

from metricshuffle.collection.adder.adder_link import AdderUnreachable
from metricshuffle.collection.adder.sum_terms import SumCollection
from metricshuffle.collection.store.records import StoreError, Verdict

pytestmark = pytest.mark.thorough
STEPS = 60
POINTS = ("closed", "sent", "signing", "signed", "adding", "added", "destroying", "destroyed")


class Ended(BaseException):
    """End of a process."""


class History:
    """One sum by adders to which anything may happen, drawn from a seed."""

    def __init__(self, adders: Adders, seed: int, folder: Path, *, rolls_back: bool) -> None:
        self.adders = adders
        self.draw = random.Random(seed)
        self.folder = folder
        self.rolls_back = rolls_back
        self.collection: SumCollection = adders.opened(longer=self.draw.choice((0, 50)), round=1)
        self.reports: list[bytes] = []
        self.stored: dict[int, set[int]] = {}
        """Adders that acknowledged each report."""
        self.copies: list[Path | None] = [None] * len(adders.all)

    def step(self) -> None:
        place = self.draw.randrange(len(self.adders.all))
        adder = self.adders.all[place]
        event = self.draw.random()
        if event < 0.35:
            self.deliver(place)
        elif event < 0.55:
            adder.now += self.draw.choice((1, 10, 40))
        elif event < 0.6:
            adder.reachable = not adder.reachable
        elif event < 0.63 and self.rolls_back:
            self.copy_or_restore(place)
        else:
            self.drive(adder, self.draw.choice(POINTS) if self.draw.random() < 0.3 else "")

    def deliver(self, place: int) -> None:
        if not self.reports or self.draw.random() < 0.4:
            self.reports.append(sealed_value(self.collection, 3 ** len(self.reports)))
        number = self.draw.randrange(len(self.reports))
        body = self.collection.shares.bodies(self.reports[number])[place]
        with suppress(StoreError):
            if self.adders.all[place].put(self.collection.digest, body) in (
                Verdict.STORED,
                Verdict.SAME,
            ):
                self.stored.setdefault(number, set()).add(place)

    def drive(self, adder: LocalAdder, point: str = "") -> None:
        def at(reached: str) -> None:
            if reached == point:
                raise Ended

        adder.service.at = at
        try:
            with suppress(AdderUnreachable, StoreError):
                adder.service.advance(self.collection.digest)
        except Ended:
            adder.restart()

    def copy_or_restore(self, place: int) -> None:
        adder = self.adders.all[place]
        adder.store.close()
        copy = self.copies[place]
        if copy is None:
            self.copies[place] = self.folder / f"copy-{place}"
            shutil.copytree(adder.folder, self.folder / f"copy-{place}")
        else:
            shutil.rmtree(adder.folder)
            shutil.copytree(copy, adder.folder)
        adder.start()

    def finish(self) -> None:
        """Let all adders reach each other, and time pass until the end."""
        for seconds in (300, 0, 0, 2000, 0):
            for adder in self.adders.all:
                adder.reachable = True
                adder.now += seconds
            for _ in range(3):
                for adder in self.adders.all:
                    self.drive(adder)

    def check(self) -> str:
        """Check what must hold at the end of any history; return the outcome."""
        digest = self.collection.digest
        rows = [adder.service.row(digest) for adder in self.adders.all]
        states = {row.state for row in rows}
        assert states <= {"released", "aborted"}, states
        released = [adder for adder in self.adders.all if adder.state(digest) == "released"]
        subjects = {
            adder.store.statements(digest)[place].subject
            for place, adder in enumerate(self.adders.all)
            if adder in released
        }
        assert len(subjects) <= 1, "two sets were summed"
        for _, people in subjects:
            assert people >= self.collection.terms.minimum
        for row, adder in zip(rows, self.adders.all, strict=True):
            assert not adder.keys.has(row.key), "keys are destroyed"
        if states == {"released"} and not self.rolls_back:
            [(_, people)] = subjects
            everywhere = [
                number
                for number, places in self.stored.items()
                if len(places) == len(self.adders.all)
            ]
            assert people == len(everywhere), "acknowledged by all is counted, and nothing else"
            modulus = self.collection.shares.modulus
            expected = sum(3**number for number in everywhere) % modulus
            assert self.adders.sum(self.collection) == [expected] * self.collection.terms.length
        return "released" if states == {"released"} else "mixed" if len(states) > 1 else "aborted"


@pytest.mark.parametrize("rolls_back", [False, True])
def test_any_history_releases_one_set_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rolls_back: bool
) -> None:
    outcomes = []
    for seed in range(25):
        folder = tmp_path / str(seed)
        adders = Adders(folder, 2 + seed % 2, monkeypatch)
        history = History(adders, seed, folder, rolls_back=rolls_back)
        for _ in range(STEPS):
            history.step()
        history.finish()
        outcomes.append(history.check())
        adders.close()
    assert outcomes.count("released") >= 5, outcomes
    assert "aborted" in outcomes, outcomes

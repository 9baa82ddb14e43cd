"""Scenarios of a shuffler on disks that fill up, fail or lose power, in mount namespaces.

    unshare --mount --propagation private python -m tests.collection.disks SCENARIO FOLDER

Mounts are seen by this process and its children only, and end with them, loop devices too. A
scenario raises, or prints its counts in one line of JSON. Database and keys are on a disk each: on
one disk, making one durable would do the same for the other.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from tests.collection.forked_shufflers import Forks, acknowledged
from tests.collection.loop_disk import NAMES_TOO, NOTHING_ELSE, Disk, run
from tests.collection.test_forensic import after_release
from tests.collection.test_kills import KILLED, POINTS, RELEASING, Case, new_case, state

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.store.records import STATES

MOMENTS = [
    *((point, until, 1) for point, until in POINTS),
    *(("handed in", "released", times) for times in range(1, 6)),
]
"""Points, the state to reach, and the number of passes before the fault."""
WHICH = (("database",), ("keys",), ("database", "keys"))
CUTS = 30
ERASED = STATES.index("erased")
FULL = ("the disk is full", "No space left on device")
READ_ONLY = ("it is read-only", "Read-only file system", "the disk cannot be read or written")


@dataclass(frozen=True)
class Bench:
    """Case with the database and the keys on a disk each."""

    case: Case
    disks: dict[str, Disk]
    secret: bytes

    def shows_secret(self) -> bool:
        """Whether a part of the secret is anywhere in the images."""
        parts = [self.secret[start : start + 16] for start in range(0, len(self.secret), 16)]
        return any(
            part in disk.image.read_bytes() for disk in self.disks.values() for part in parts
        )

    def finished(self, forks: Forks) -> None:
        """Finish the case with a new process."""
        before = state(self.case)
        self.case.check_between()
        assert forks.ended(self.case.job) == [0]
        assert state(self.case) >= before
        self.case.check()

    def said(self, forks: Forks, point: str, times: int, command: str) -> str:
        """Error of a shuffler with this fault at a point; empty if it no longer needed the disk."""
        reached = self.case.folder / "reached"
        said = self.case.folder / "said"
        [ended] = forks.ended(
            replace(
                self.case.job, kill_at=point, times=times, command=f"{command} && touch {reached}"
            )
        )
        assert reached.exists()
        assert ended == (-1 if said.exists() else 0)
        return said.read_text() if ended else ""


@contextmanager
def bench(folder: Path, until: str = "released") -> Iterator[Bench]:
    disks = {name: Disk.new(folder / name) for name in ("database", "keys")}
    keys = disks["keys"].where / "keys"
    keys.mkdir()
    case = new_case(
        f"sqlite:///{disks['database'].where}/shuffler.db", folder / "case", until, keys_at=keys
    )
    [secret] = (path.read_bytes() for path in keys.glob("*.key"))
    tried = Bench(case, disks, secret)
    yield tried
    for disk in disks.values():
        disk.unmount()
    assert not tried.shows_secret()
    shutil.rmtree(folder)


def told(said: str, causes: tuple[str, ...]) -> str:
    """Cause that a shuffler names in one sentence; empty if it did not fail."""
    if not said:
        return ""
    kind, _, sentence = said.partition(": ")
    assert kind == "StoreError", said
    assert "\n" not in sentence
    assert any(cause in sentence for cause in causes), said
    return next(cause for cause in causes if cause in sentence)


def met(
    folder: Path,
    forks: Forks,
    command: Callable[[Disk], str],
    undo: Callable[[Disk], None],
    causes: tuple[str, ...],
) -> dict[str, Any]:
    """Put one disk or both into trouble at every moment, then repair them.

    Returns the number of failures and their causes.
    """
    count: Counter[str] = Counter()
    for which, (point, until, times) in product(WHICH, MOMENTS):
        print(f"{' and '.join(which)} at {point}", file=sys.stderr)
        with bench(folder / "bench", until) as tried:
            disks = [tried.disks[name] for name in which]
            cause = told(tried.said(forks, point, times, " && ".join(map(command, disks))), causes)
            for disk in disks:
                undo(disk)
            assert cause or STATES[state(tried.case)] == until
            assert_durable(tried.case, point)
            count[cause] += 1
            tried.finished(forks)
    failed = {cause: count[cause] for cause in causes}
    return {"points": count.total(), "failed": sum(failed.values()), "causes": failed}


def full(folder: Path, forks: Forks) -> dict[str, Any]:
    """Fill a disk to its last byte, then free space."""
    return met(folder, forks, Disk.filling, lambda disk: (disk.where / "filler").unlink(), FULL)


def read_only(folder: Path, forks: Forks) -> dict[str, Any]:
    """Make a file system read-only while its files are open; unsynced data is lost."""
    return met(folder, forks, Disk.failing, Disk.again, READ_ONLY)


def assert_durable(case: Case, point: str) -> None:
    """Assert that a state reached at a named point is durable."""
    name = {"opened": "open"}.get(point, point)
    assert name not in STATES or state(case) >= STATES.index(name), point


def power(folder: Path, forks: Forks) -> dict[str, Any]:
    """Cut the power at every point and at random moments; unsynced data is lost."""
    handed_out(folder / "handed out")
    for left, (point, until, times) in product((NOTHING_ELSE, NAMES_TOO), MOMENTS):
        print(f"cut at {point}, left {left}", file=sys.stderr)
        with bench(folder / "bench", until) as tried:
            assert forks.ended(replace(tried.case.job, kill_at=point, times=times)) == [KILLED]
            shows = without_power(tried, left)
            assert_durable(tried.case, point)
            assert not shows or point not in RELEASING[RELEASING.index("keys destroyed") :]
            assert (
                point != "settled" or tried.case.output_file.exists()
            )  # (the copy in the database would make up for it later)
            tried.finished(forks)
    return {"points": 2 * len(MOMENTS), **at_random(folder, forks)}


def handed_out(folder: Path) -> None:
    """Check that a key that others may know is not lost."""
    disk = Disk.new(folder)
    party = KeyFolder.at(disk.where / "keys").new().party
    disk.cut(NOTHING_ELSE)
    disk.again()
    assert KeyFolder.at(disk.where / "keys").of(party.key) is not None
    disk.unmount()


def without_power(tried: Bench, left: int) -> bool:
    """Cut the power and restart; return whether the secret can still be found.

    It must be found exactly as long as it is needed.
    """
    with ExitStack() as away:
        for disk in tried.disks.values():
            disk.cut(left)
            away.enter_context(disk.away())
        shows = tried.shows_secret()
    reached = STATES[max(0, state(tried.case))]
    assert shows or reached not in ("open", "sealed")
    assert not shows or STATES.index(reached) < ERASED
    tried.case.check_between()
    return shows


def at_random(folder: Path, forks: Forks) -> dict[str, Any]:
    drawn = random.Random()
    states = Counter[str]()
    some = 0
    with bench(folder / "bench") as timed:
        start = time.monotonic()
        assert forks.ended(timed.case.job) == [0]
        usual = time.monotonic() - start
    while states.total() < CUTS:
        with bench(folder / "bench") as tried:
            if drawn.random() < 0.8:  # (to open it takes as long as all the rest)
                assert forks.ended(replace(tried.case.job, kill_at="opened")) == [KILLED]
            for _ in range(
                drawn.choice((1, 1, 2))
            ):  # (soon there is little left to do: most begin anew)
                [ended] = forks.ended(
                    replace(tried.case.job, delay=max(0.001, drawn.random() * usual))
                )
                before = len(acknowledged(tried.case.folder))
                without_power(tried, drawn.choice((NOTHING_ELSE, NAMES_TOO)))
                if ended != KILLED:
                    break
                reached = state(tried.case)
                states[STATES[reached] if reached >= 0 else "none"] += 1
                some += 0 < before < len(tried.case.reports)
            tried.finished(forks)
    return {"cuts": states.total(), "states": states, "while reports came": some}


def image(folder: Path, _: Forks) -> dict[str, Any]:
    """All bytes of a disk before and after the release, including free blocks and the journal."""
    disk = Disk.new(folder / "disk")
    for name in ("keys", "temporary"):
        (disk.where / name).mkdir()
        (folder / name).symlink_to(disk.where / name)
    released, beside = after_release(
        f"sqlite:///{disk.where}/shuffler.db", folder, folder, disk.away
    )
    disk.unmount()
    return {
        "released": sorted(kind for kind in released if released[kind]),
        "beside": sorted(kind for kind in beside if beside[kind]),
    }


SCENARIOS = {"full": full, "read-only": read_only, "power": power, "image": image}


def main(scenario: str, folder: Path) -> None:
    run(
        "mount", "--no-mtab", "-t", "tmpfs", "-o", "size=512m", "disks", folder
    )  # (thousands of small writes would wait for a real disk)
    with Forks() as forks:
        print(json.dumps(SCENARIOS[scenario](folder, forks)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

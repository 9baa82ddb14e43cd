"""kill -9 at named points and at random, with one or two shufflers: nothing lost or doubled."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.collection.conftest import POSTGRES_SLOWLY
from tests.collection.forked_shufflers import Forks, Job, acknowledged
from tests.collection.rounds import HONEST, Round, new_round
from tests.collection.store_contents import stored_reports

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.shuffler.transitions import STATES_WITH_KEYS
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import STATES

START = 2_000_000_000.0
ENOUGH = HONEST + 2
KILLED = signal.SIGKILL.value
PARTS = 1_000

OPENING = ["opening", "opened", "link .opened", "unlink .opened"]
RELEASING = [
    "sealing",
    "sealed",
    "mixing",
    "written",
    "synced",
    "replace .boxes",
    "renamed",
    "settled",
    "copying",
    "copied",
    "compared",
    "shuffled",
    "forgetting",
    "forgotten",
    "unlink .key",
    "keys destroyed",
    "erased",
    "checked",
    "released",
]
PURGING = ["purging", "purged", "unlink .boxes", "cleaned"]
ABORTING = ["aborting", "aborted", "forgetting", "forgotten", "unlink .boxes", "cleaned"]
POINTS = [
    *((point, "released") for point in OPENING + RELEASING),
    *((point, "purged") for point in PURGING),
]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


@dataclass(frozen=True)
class Case:
    """A collection that is about to be opened, its reports, and what it has to let go."""

    made: Round
    job: Job
    reports: frozenset[bytes]
    output: bytes

    @property
    def folder(self) -> Path:
        return Path(self.job.folder)

    @property
    def output_file(self) -> Path:
        return self.folder / "keys" / "output" / f"{self.made.digest}.boxes"

    def files(self) -> set[str]:
        """But for locks, and for what holds no more than a digest and is swept away after a day."""
        names = {path.name for path in (self.folder / "keys").rglob("*") if path.is_file()}
        return {name for name in names if not name.endswith(".lock") and ".opened." not in name}

    def check_between(self) -> None:
        """Acknowledged reports are there; output is complete only after the keys are gone."""
        store = connect_store(self.job.url, lambda: self.job.opened)
        keys = KeyFolder.at(self.folder / "keys")
        row = store.row(self.made.digest)
        in_database = b"".join(store.output(self.made.digest))
        store.close()
        told = acknowledged(self.folder)
        is_over = row is not None and row.state == "purged"
        assert (
            is_over or not self.output_file.exists() or self.output_file.read_bytes() == self.output
        )
        if row is None:
            assert not told
        elif row.state in ("open", "sealed"):
            secrets = keys.of(row.key)
            assert secrets is not None
            stored = stored_reports(self.job.url)
            assert {secrets.tag(report) for report in told} <= stored.keys()
        elif not is_over:
            assert (row.people, in_database) == (len(self.reports), self.output)
        assert row is None or row.state in STATES_WITH_KEYS or not keys.has(row.key)

    def check(self) -> None:
        """Every acknowledged report is released exactly once, and nothing else is left."""
        store = connect_store(self.job.url, lambda: self.job.closed)
        row = store.row(self.made.digest)
        assert row is not None
        in_database = b"".join(store.output(self.made.digest))
        store.close()
        assert acknowledged(self.folder) == self.reports
        if self.job.until == "released":
            assert (row.state, row.reason, row.people, row.left_out) == (
                "released",
                "",
                len(self.reports),
                0,
            )
            assert self.output_file.read_bytes() == in_database == self.output
            assert self.files() == {"operator.token", "owner.id", f"{self.made.digest}.boxes"}
        else:
            assert (row.state, row.people, in_database) == ("purged", len(self.reports), b"")
            assert self.files() == {"operator.token", "owner.id"}


def new_case(
    url: str, folder: Path, until: str = "released", number: int = 1, keys_at: Path | None = None
) -> Case:
    """Cases of one database have different numbers and times; keys may be elsewhere."""
    folder.mkdir()
    if keys_at is not None:
        (folder / "keys").symlink_to(keys_at)
    keys = KeyFolder.at(folder / "keys")
    start = START + 100 * number
    secrets = keys.new()
    made = new_round([(secrets.party, "http://127.0.0.1:1")], now=start, split=(number, PARTS))
    reports = [made.report() for _ in range(ENOUGH)]
    (folder / "served").write_bytes(made.collection.served)
    (folder / "reports").write_text("\n".join(report.hex() for report in reports))
    output = b"".join(sorted(made.boxes(reports, secrets.private)))
    return Case(made, Job(url, str(folder), start, start + 60, until), frozenset(reports), output)


def state(case: Case) -> int:
    """How far it is, as a number; -1 before it is opened."""
    store = connect_store(case.job.url, lambda: case.job.opened)
    row = store.row(case.made.digest)
    store.close()
    return -1 if row is None else STATES.index(row.state)


def killed_at_every_point(times: int, url: str, folder: Path, forks: Forks) -> None:
    for number in range(times * len(POINTS)):
        point, until = POINTS[number % len(POINTS)]
        print(f"killed at {point}")
        case = new_case(url, folder / f"case{number}", until, number + 1)
        assert forks.ended(replace(case.job, kill_at=point)) == [KILLED]
        before = state(case)
        case.check_between()
        assert forks.ended(case.job) == [0]
        assert state(case) >= before
        case.check()
        if times > 1:
            assert forks.ended(case.job) == [0]  # and once more, though there is nothing to do
            case.check()


@pytest.mark.thorough
@POSTGRES_SLOWLY
def test_killed_at_every_point(store_url: str, tmp_path: Path, forks: Forks) -> None:
    assert len(POINTS) >= 14
    killed_at_every_point(1, store_url, tmp_path, forks)


@pytest.mark.slow
def test_killed_at_every_point_ten_times(store_url: str, tmp_path: Path, forks: Forks) -> None:
    killed_at_every_point(10, store_url, tmp_path, forks)


@pytest.mark.thorough
def test_killed_while_it_is_given_up(store_url: str, tmp_path: Path, forks: Forks) -> None:
    """The output of an interrupted run is not what the reports give: reports were lost."""
    for number, point in enumerate(ABORTING, 1):
        case = new_case(store_url, tmp_path / point, number=number)
        assert forks.ended(replace(case.job, kill_at="mixing")) == [KILLED]
        case.output_file.write_bytes(case.output + case.output[:57])
        assert forks.ended(replace(case.job, kill_at=point)) == [KILLED]
        assert forks.ended(case.job) == [0]
        assert STATES[state(case)] == "aborted"
        assert case.files() == {"operator.token", "owner.id"}


@pytest.mark.slow
def test_killed_at_every_point_one_after_the_other(
    store_url: str, tmp_path: Path, forks: Forks
) -> None:
    case = new_case(store_url, tmp_path / "case")
    states = []
    for point in RELEASING:
        assert forks.ended(replace(case.job, kill_at=point)) == [KILLED]
        states.append(state(case))
    assert states == sorted(states)
    assert forks.ended(case.job) == [0]
    case.check()


@pytest.mark.thorough
def test_several_at_once_of_which_one_is_killed(
    store_url: str, tmp_path: Path, forks: Forks
) -> None:
    for number, point in enumerate(
        ["written", "renamed", "copied", "shuffled", "keys destroyed", "erased"], 1
    ):
        case = new_case(store_url, tmp_path / point, number=number)
        ended = forks.ended(replace(case.job, kill_at=point, drivers=3))
        assert set(ended) <= {0, KILLED}
        assert KILLED in ended
        assert forks.ended(replace(case.job, drivers=3)) == [0, 0, 0]
        case.check()


@pytest.mark.thorough
@POSTGRES_SLOWLY
def test_four_at_once(store_url: str, tmp_path: Path, forks: Forks) -> None:
    case = new_case(store_url, tmp_path / "case")
    assert forks.ended(replace(case.job, drivers=4)) == [0] * 4
    case.check()


def random_kills(kills: int, url: str, folder: Path, forks: Forks) -> int:
    """Kills at random moments in collections driven by one or two processes."""
    drawn = random.Random()
    number = 0
    done = 0
    while done < kills:
        number += 2
        timed = new_case(url, folder / f"timed{number}", number=number - 1)
        start = time.monotonic()
        assert forks.ended(timed.job) == [0]
        usual = time.monotonic() - start
        case = new_case(url, folder / f"case{number}", number=number)
        for _ in range(50):
            ended = forks.ended(
                replace(
                    case.job,
                    delay=max(0.001, drawn.random() * usual * 1.1),
                    drivers=drawn.choice([1, 2]),
                )
            )
            assert set(ended) <= {0, KILLED}
            done += ended.count(KILLED)
            if KILLED not in ended:
                break
        assert forks.ended(case.job) == [0]
        case.check()
    return done


@pytest.mark.slow
def test_killed_at_random_moments(store_url: str, tmp_path: Path, forks: Forks) -> None:
    assert random_kills(12, store_url, tmp_path, forks) >= 12


@pytest.mark.slow
def test_killed_at_two_hundred_random_moments(store_url: str, tmp_path: Path, forks: Forks) -> None:
    assert random_kills(200, store_url, tmp_path, forks) >= 200


# A full disk


def limits(case: Case) -> list[int]:
    """File size limits at which different writes fail: all, keys, the part, the copy..."""
    return [
        0,
        1,
        100,
        4_000,
        30_000,
        *(len(case.output) * part // 8 for part in range(1, 9)),
        *range(40_000, 400_000, 20_000),
    ]


@pytest.mark.slow
def test_a_full_disk_is_tried_again_later_and_nothing_is_half(tmp_path: Path, forks: Forks) -> None:
    """A file size limit acts like a full disk; work continues when there is room."""
    failed = 0
    for number, room in enumerate(limits(new_case("", tmp_path / "measured"))):
        case = new_case(f"sqlite:///{tmp_path / f'{number}.db'}", tmp_path / f"case{number}")
        assert forks.ended(replace(case.job, kill_at="opened")) == [KILLED]
        [ended] = forks.ended(replace(case.job, room=max(1, room)))
        assert ended in (0, -1)
        failed += ended == -1
        case.check_between()
        store = connect_store(case.job.url, lambda: START)
        Shuffler(store, KeyFolder.at(case.folder / "keys")).sweep()
        store.close()
        assert forks.ended(case.job) == [0]
        case.check()
    assert failed >= 10

"""Process that forks shufflers and ends them with kill -9 where a test says.

Reads jobs, one line of JSON each, and answers with the list of exits of its shufflers: the number
of the signal, or minus the returned code. A fork of a process with one thread is a real process and
starts in milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import Entry, Verdict
from metricshuffle.collection.store.sql_store import Store

ROOT = Path(__file__).parents[2]
AT_ONCE = 5


@dataclass(frozen=True)
class Job:
    """Folder with `served`, `reports` (hexadecimal, one per line) and `keys`, and a target state.

    If it fails, the error is in `said` there.
    """

    url: str
    folder: str
    opened: float
    """Time at which it is opened and gets its reports."""
    closed: float
    """Time at which it is driven afterwards."""
    until: str = "released"
    """State to reach, or `purged`, for which it is acknowledged."""
    after: str = ""
    """Previous hop, if this is a later one."""
    kill_at: str = ""
    """Named point, `handed in` after some reports, or system call and path: `unlink .key`."""
    command: str = ""
    """Shell command to run there before the shuffler continues; without one it is killed."""
    times: int = 1
    """Number of passes of the point before the kill."""
    delay: float = 0
    """Seconds after which the first shuffler is killed."""
    drivers: int = 1
    room: int = 0
    """Maximum bytes of a file; 0 for no limit."""


@dataclass
class Forks:
    """Handle of the forking process."""

    environment: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.collection.forked_shufflers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **self.environment},
        )
        return self

    def ended(self, job: Job) -> list[int]:
        """Exits of the shufflers of a job."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        answer: list[int] = json.loads(self._process.stdout.readline())
        return answer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process.stdout.close()


def acknowledged(folder: Path) -> set[bytes]:
    """Reports acknowledged before a kill; the last line may be cut."""
    try:
        lines = (folder / "acknowledged").read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return set()
    return {bytes.fromhex(line.strip()) for line in lines if line.endswith("\n") and len(line) % 2}


# In the process


def main() -> None:
    for line in sys.stdin:
        job = Job(**json.loads(line))
        children = [_forked(job) for _ in range(job.drivers)]
        if job.delay:
            time.sleep(job.delay)
            os.kill(children[0], signal.SIGKILL)
        print(json.dumps([_ended(child) for child in children]), flush=True)


def _ended(child: int) -> int:
    """Exit of a process; one that hangs is ended and counts as failed."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return -os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    return -99


def _forked(job: Job) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = _shuffle(job)
    except BaseException as wrong:
        traceback.print_exc()
        (Path(job.folder) / "said").write_text(f"{type(wrong).__name__}: {wrong}")
    finally:
        os._exit(code)


def _shuffle(job: Job) -> int:
    folder = Path(job.folder)
    clock = [job.opened]
    if job.room:
        _limit(job.room)
    store = connect_store(job.url, lambda: clock[0])
    shuffler = Shuffler(
        store, KeyFolder.at(folder / "keys"), after=job.after or None, at=_killer(job)
    )
    served = (folder / "served").read_bytes()
    shuffler.open(served)
    digest = hashlib.sha256(served).hexdigest()
    if not job.after:
        _put(shuffler, digest, folder)
    clock[0] = job.closed
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        state = shuffler.advance(digest)
        if state == "released" and job.until == "purged":
            store.acknowledge(digest)
        if state in (job.until, "aborted"):
            store.close()
            return 0
        time.sleep(0.01)
    return 2


def _put(shuffler: Shuffler, digest: str, folder: Path) -> None:
    """Submit the reports repeatedly until each is acknowledged or it is too late."""
    from metricshuffle.collection.terms import Collection

    store: Store = shuffler.store
    row = store.row(digest)
    keys = shuffler.keys.of(row.key) if row is not None and row.state == "open" else None
    if row is None or keys is None:
        return
    sealing = Collection(row.served).sealing
    reports = [bytes.fromhex(line) for line in (folder / "reports").read_text().split()]
    log = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for start in range(0, len(reports), AT_ONCE):
        entries = []
        for report in reports[start : start + AT_ONCE]:
            _, boxes = sealing.open_report(report, keys.private)
            tag = keys.tag(report)
            entries.append(Entry(tag, b"", keys.hidden(tag, b"".join(boxes))))
        for report, verdict in zip(reports[start:], store.put(digest, entries), strict=False):
            if verdict in (Verdict.STORED, Verdict.SAME):
                os.write(log, report.hex().encode() + b"\n")
        shuffler.at("handed in")
    os.close(log)


def _killer(job: Job) -> Any:
    """Function that is called at every named point."""
    left = [job.times]

    def passed() -> None:
        left[0] -= 1
        if left[0] == 0 and job.command:
            subprocess.run(["sh", "-c", job.command], check=True, stdout=sys.stderr)  # noqa: S607 - any shell
        elif left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    call, _, ending = job.kill_at.partition(" ")
    if call in ("unlink", "replace", "link") and ending.startswith("."):
        real = getattr(os, call)

        def watched(path: Any, *others: Any, **named: Any) -> Any:
            if str(path).endswith(ending) or (others and str(others[0]).endswith(ending)):
                passed()
            return real(path, *others, **named)

        setattr(os, call, watched)
        return lambda _: None
    return lambda point: passed() if point == job.kill_at else None


def _limit(room: int) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()

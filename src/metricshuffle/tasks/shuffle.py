"""The shuffler's side: reports are recognised, added up and forgotten, and a ledger remembers which batches were let go."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from metricshuffle.errors import InputError, PlanError
from metricshuffle.numerics.types import Bits, Mask, Words
from metricshuffle.protocols.protocol import Protocol, Reports
from metricshuffle.protocols.tally import Batch, Tally

Pairs = tuple[Words, Words]
SQLITE_HEADER = b"SQLite format 3\0"
LEDGER_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS batches (batch TEXT PRIMARY KEY, task TEXT NOT NULL, round INTEGER NOT NULL, reports INTEGER NOT NULL)"
)


@dataclass(frozen=True)
class Ledger:
    """A file beside the task in which a shuffler keeps the ids of the batches that were let go, with their task and round.

    The same reports in two releases tell on whoever is in one and not in the other, so a batch is let go once.
    """

    path: Path

    def known(self, batch_id: bytes) -> bool:
        """Whether a batch was let go before."""
        if not self.path.exists():
            return False
        with self._opened() as connection:
            return connection.execute("SELECT 1 FROM batches WHERE batch = ?", (batch_id.hex(),)).fetchone() is not None

    def record(self, task: str, batches: Mapping[bytes, tuple[int, int]]) -> None:
        """Remember batches (round and reports by id); all of them, or none if one was let go in the meantime."""
        rows = [(batch.hex(), task, round, reports) for batch, (round, reports) in batches.items()]
        try:
            with self._opened() as connection, connection:
                connection.executemany("INSERT INTO batches VALUES (?, ?, ?, ?)", rows)
        except sqlite3.IntegrityError:
            raise PlanError(
                f"some of these reports were let go in the meantime, as {self.path} says; nobody's report may count twice."
            ) from None

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        self._check_kind()
        try:
            with closing(sqlite3.connect(self.path)) as connection:
                connection.execute(LEDGER_SCHEMA)
                yield connection
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise InputError(f"cannot use the ledger {self.path}: {error}.") from None

    def _check_kind(self) -> None:
        """Raise if the file is something else: an analyst's ledger, of releases, may lie beside the same plan."""
        try:
            with open(self.path, "rb") as stream:
                start = stream.read(len(SQLITE_HEADER))
        except OSError:  # it is made now, or SQLite says what is wrong
            return
        if start not in (b"", SQLITE_HEADER):
            raise InputError(
                f"cannot use the ledger {self.path}: it is not a shuffler's, of batches that were let go (an analyst's, of releases, is "
                "another file); name another one with --ledger."
            )


@dataclass
class Shuffle:
    """Adds up batches of reports of one task and round, and recognises those that come twice."""

    protocol: Protocol
    task: str
    ledger: Ledger | None = None
    tally: Tally | None = None
    batches: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Round and number of reports of every batch, by its id."""
    ignored: int = 0
    """Reports that were here already, under another batch."""
    _parts: dict[bytes, list[tuple[int, int]]] = field(default_factory=dict, repr=False)
    _seen: SeenIds = field(default_factory=lambda: SeenIds(), repr=False)

    def add(self, reports: Reports) -> int:
        """Add a batch, or a part of one; returns its round."""
        if not isinstance(reports, Reports):
            raise InputError(f"only Reports can be shuffled, got {type(reports).__name__}.")
        batch = reports.batch
        Batch(self.task, batch.round if self.tally is None else self.tally.batch.round).check_same(batch, "these reports were made")
        self._check_duplicates(reports)
        if self.tally is None:
            self.tally = self.protocol.tally(Batch(self.task, batch.round))
        self.protocol.check_width(reports.messages)
        messages = reports.messages
        if reports.known_ids is not None:
            new = self._seen.new(reports.known_ids)
            self.ignored += int(np.count_nonzero(~new))
            messages = messages[new]
        self.tally.add(messages, seeded=batch.seeded)
        return batch.round

    def _check_duplicates(self, reports: Reports) -> None:
        """Raise if these reports, as parts of their batch, were here before."""
        key, first, last = reports.batch_id, reports.first, reports.first + len(reports)
        parts = self._parts.setdefault(key, [])
        if not parts and self.ledger is not None and self.ledger.known(key):
            raise PlanError(
                f"these reports were let go in an earlier batch, as {self.ledger.path} says; the same people in two releases would give "
                "them away, so nobody's report may count twice."
            )
        if any(first < end and start < last for start, end in parts):
            raise PlanError("the same reports are here twice; nobody's report may count twice, so give each batch once.")
        parts.append((first, last))
        self.batches[key] = (reports.batch.round, self.batches.get(key, (0, 0))[1] + len(reports))


class SeenIds:
    """Which random ids were seen: sorted runs that grow by doubling, 16 bytes an id, so that a hundred million take 1.6 GB."""

    def __init__(self) -> None:
        self._runs: list[Pairs] = []

    def new(self, ids: Bits) -> Mask:
        """Which of these ids (a row of 16 bytes each) are new; all are remembered."""
        halves = np.ascontiguousarray(ids).view(np.uint64).reshape(len(ids), 2)
        first, second = halves[:, 0].copy(), halves[:, 1].copy()
        order = np.lexsort((second, first))
        new = np.ones(len(ids), dtype=bool)
        same = (np.diff(first[order]) == 0) & (np.diff(second[order]) == 0)
        new[order[1:][same]] = False
        for run in self._runs:
            new &= ~_find_in_run(first, second, run)
        new_order = order[new[order]]
        self._runs.append((first[new_order], second[new_order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            later, earlier = self._runs.pop(), self._runs.pop()
            joined = np.concatenate([earlier[0], later[0]]), np.concatenate([earlier[1], later[1]])
            order = np.lexsort((joined[1], joined[0]))
            self._runs.append((joined[0][order], joined[1][order]))
        return new


def _find_in_run(first: Words, second: Words, run: Pairs) -> Mask:
    """Which ids lie in a sorted run; two of its ids that share their first half are one chance in 2^64 each."""
    if not len(run[0]):
        return np.zeros(len(first), dtype=bool)
    places = np.minimum(np.searchsorted(run[0], first), len(run[0]) - 1)
    return np.asarray((run[0][places] == first) & (run[1][places] == second))

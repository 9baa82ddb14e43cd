"""Shuffler's side: recognise, add up and forget reports; a ledger records released batches."""

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
    "CREATE TABLE IF NOT EXISTS batches (batch TEXT PRIMARY KEY, task TEXT NOT NULL, round "
    "INTEGER NOT NULL, reports INTEGER NOT NULL)"
)


@dataclass(frozen=True)
class Ledger:
    """File next to the task that records the ids of released batches, with task and round.

    A batch is released once: the difference of two releases would reveal a person who is in only
    one of them.
    """

    path: Path

    def known(self, batch_id: bytes) -> bool:
        """Return whether a batch was released before."""
        if not self.path.exists():
            return False
        with self._opened() as connection:
            return (
                connection.execute(
                    "SELECT 1 FROM batches WHERE batch = ?", (batch_id.hex(),)
                ).fetchone()
                is not None
            )

    def record(self, task: str, batches: Mapping[bytes, tuple[int, int]]) -> None:
        """Record batches (round and reports by id): all, or none if one was released meanwhile."""
        rows = [(batch.hex(), task, round, reports) for batch, (round, reports) in batches.items()]
        try:
            with self._opened() as connection, connection:
                connection.executemany("INSERT INTO batches VALUES (?, ?, ?, ?)", rows)
        except sqlite3.IntegrityError:
            raise PlanError(
                "some of these reports were released in the meantime, according to "
                f"{self.path}; no report may count twice."
            ) from None

    def check_writable(self) -> None:
        """Raise unless batches can be recorded."""
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")

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
        """Raise if the file is of another kind, such as an analyst's ledger of the same plan."""
        try:
            with open(self.path, "rb") as stream:
                start = stream.read(len(SQLITE_HEADER))
        except OSError:  # it does not exist yet, or SQLite reports the problem
            return
        if start not in (b"", SQLITE_HEADER):
            raise InputError(
                f"cannot use the ledger {self.path}: it is not a shuffler's ledger of released "
                "batches (an analyst's ledger of releases is another file); name another one "
                "with --ledger."
            )


@dataclass
class Shuffle:
    """Adds up batches of reports of one task and round, and recognises repeated ones."""

    protocol: Protocol
    task: str
    ledger: Ledger | None = None
    tally: Tally | None = None
    more_ledgers: tuple[Ledger, ...] = ()
    """Further ledgers that must not know these reports, and that record them."""
    batches: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Round and number of reports of every batch, by its id."""
    ignored: int = 0
    """Number of reports that were added before in another batch."""
    _parts: dict[bytes, list[tuple[int, int]]] = field(default_factory=dict, repr=False)
    _seen: SeenIds = field(default_factory=lambda: SeenIds(), repr=False)

    def add(self, reports: Reports) -> int:
        """Add a batch, or a part of one; return its round."""
        if not isinstance(reports, Reports):
            raise InputError(f"only Reports can be shuffled, got {type(reports).__name__}.")
        batch = reports.batch
        Batch(self.task, batch.round if self.tally is None else self.tally.batch.round).check_same(
            batch, "these reports were made"
        )
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

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """All ledgers, each file once."""
        listed = (*filter(None, [self.ledger]), *self.more_ledgers)
        return tuple({ledger.path.resolve(): ledger for ledger in listed}.values())

    def record(self) -> None:
        """Record the batches in all ledgers."""
        for ledger in self.ledgers:
            ledger.record(self.task, self.batches)

    def _check_duplicates(self, reports: Reports) -> None:
        """Raise if these reports, as parts of their batch, were added before."""
        key = reports.batch_id
        first = reports.first
        last = reports.first + len(reports)
        parts = self._parts.setdefault(key, [])
        for ledger in self.ledgers if not parts else ():
            if ledger.known(key):
                raise PlanError(
                    "these reports were released in an earlier batch, according to "
                    f"{ledger.path}; two releases could be compared to single out people, so "
                    "no report may count twice."
                )
        if any(first < end and start < last for start, end in parts):
            raise PlanError(
                "the same reports occur twice; no report may count twice, so give each batch once."
            )
        parts.append((first, last))
        self.batches[key] = (reports.batch.round, self.batches.get(key, (0, 0))[1] + len(reports))


class SeenIds:
    """Set of random ids in sorted runs that grow by doubling.

    It takes 16 bytes an id: 1.6 GB for a hundred million.
    """

    def __init__(self) -> None:
        self._runs: list[Pairs] = []

    def new(self, ids: Bits) -> Mask:
        """Return which of these ids (a row of 16 bytes each) are new, and remember all."""
        halves = np.ascontiguousarray(ids).view(np.uint64).reshape(len(ids), 2)
        first = halves[:, 0].copy()
        second = halves[:, 1].copy()
        order = np.lexsort((second, first))
        new = np.ones(len(ids), dtype=bool)
        same = (np.diff(first[order]) == 0) & (np.diff(second[order]) == 0)
        new[order[1:][same]] = False
        for run in self._runs:
            new &= ~_find_in_run(first, second, run)
        new_order = order[new[order]]
        self._runs.append((first[new_order], second[new_order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            later = self._runs.pop()
            earlier = self._runs.pop()
            joined = np.concatenate([earlier[0], later[0]]), np.concatenate([earlier[1], later[1]])
            order = np.lexsort((joined[1], joined[0]))
            self._runs.append((joined[0][order], joined[1][order]))
        return new


def _find_in_run(first: Words, second: Words, run: Pairs) -> Mask:
    """Return which ids are in a sorted run.

    Only the first id with a given first half is found; two ids share it with probability 2^-64.
    """
    if not len(run[0]):
        return np.zeros(len(first), dtype=bool)
    places = np.minimum(np.searchsorted(run[0], first), len(run[0]) - 1)
    return np.asarray((run[0][places] == first) & (run[1][places] == second))

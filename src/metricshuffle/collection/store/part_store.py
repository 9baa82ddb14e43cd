"""Parts of collections in PostgreSQL: the store of an edge, and what the hub does with its leases.

An edge stores a batch in one transaction that always ends with an update of the row of its part.
Therefore the batch is acknowledged only if a synchronous standby has it, and refused once the part
is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar
from uuid import UUID

from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.store.database_history import HistoryRecord, RecordedServer
from metricshuffle.collection.store.guarded_clock import MAX_CLOCK_JUMP_SECONDS
from metricshuffle.collection.store.postgres_server import (
    DatabaseRole,
    PostgresServer,
    PostgresTransaction,
)
from metricshuffle.collection.store.records import (
    DatabaseRolledBack,
    Entry,
    PartRow,
    StoreError,
    Verdict,
)
from metricshuffle.collection.store.sql_store import Store
from metricshuffle.collection.store.transaction import Transaction

ROOM_BLOCK = 10_000
"""Largest room that a part gets at once, in reports: an edge takes them in some seconds."""
ADD_QUERY = """
WITH given AS (
    SELECT * FROM unnest(%(names)b::uuid[], %(tags)b::uuid[], %(hidden)b::bytea[]) AS given (name, tag, hidden)
), fresh AS (
    INSERT INTO admitted_{id} SELECT name, tag FROM given ORDER BY name ON CONFLICT DO NOTHING RETURNING name
), kept AS (
    INSERT INTO report_{id} (lease, name, hidden) SELECT %(lease)s, name, hidden FROM given JOIN fresh USING (name)
)
SELECT name FROM fresh
"""  # noqa: E501
SPEND_QUERY = """
WITH given AS (
    SELECT * FROM unnest(%(names)b::uuid[], %(tags)b::uuid[], %(hidden)b::bytea[]) AS given (name, tag, hidden)
), fresh AS (
    UPDATE admitted_{id} AS ticket SET tag = given.tag FROM given
    WHERE ticket.name = given.name AND ticket.tag IS NULL RETURNING ticket.name
), kept AS (
    INSERT INTO report_{id} (lease, name, hidden) SELECT %(lease)s, name, hidden FROM given JOIN fresh USING (name)
)
SELECT name FROM fresh
"""  # noqa: E501
COUNT_QUERY = """
UPDATE part SET reports = reports + %(count)s
WHERE lease = %(lease)s AND collection = %(id)s AND NOT closed AND reports + %(count)s <= room
    AND extract(epoch FROM clock_timestamp()) BETWEEN opens AND until
RETURNING extract(epoch FROM clock_timestamp()) < until
"""
NOT_TAKEN = "reports are not taken now; they are counted, or the lease of this edge has ended."


class NoRoom(StoreError):
    """The part of an edge has no room for these reports."""


class EdgeStore(Store):
    """Store of an edge: reads collections, and stores reports in the part of a lease."""

    at: ClassVar[Callable[[str], None]] = do_nothing
    """Called at every named point, where tests end the process."""

    def __init__(self, server: PostgresServer, jump: float = MAX_CLOCK_JUMP_SECONDS) -> None:
        super().__init__(server, jump=jump)
        self._server = server

    def put(self, digest: str, entries: Sequence[Entry]) -> list[Verdict]:
        """Store reports, one transaction for each lease, and return a verdict for each.

        Raises: StoreError if a part is closed; that says nothing about the collection.
        """
        verdicts: dict[int, Verdict] = {}
        for lease in dict.fromkeys(entry.lease for entry in entries):
            places = [place for place, entry in enumerate(entries) if entry.lease == lease]
            batch = [entries[place] for place in places]
            verdicts.update(zip(places, self._put_leased(digest, lease, batch), strict=True))
        return [verdicts[place] for place in range(len(entries))]

    def _put_leased(self, digest: str, lease: bytes, entries: Sequence[Entry]) -> list[Verdict]:
        try:
            return self._stored(digest, lease, entries, has_room=True)
        except NoRoom:
            return self._stored(digest, lease, entries, has_room=False)

    def _stored(
        self, digest: str, lease: bytes, entries: Sequence[Entry], *, has_room: bool
    ) -> list[Verdict]:
        """Store new reports if there is room, and recognize those that are stored already."""
        at = type(self).at
        with self._transaction() as db:
            at("begun")
            rules = self._load_rules(db, digest, lock=False)
            names = [UUID(bytes=rules.name_of(entry)) for entry in entries]
            tags = [UUID(bytes=entry.tag) for entry in entries]
            # One entry per name: one statement would store two equal entries twice.
            first = {name: place for place, name in reversed(list(enumerate(names)))}
            places = [first[name] for name in sorted(first)]
            known = self._lock_tickets(db, rules.id, list(first)) if rules.ticketed else {}
            values = {
                "lease": UUID(bytes=lease),
                "id": rules.id,
                "names": [names[place] for place in places],
                "tags": [tags[place] for place in places],
                "hidden": [entries[place].hidden for place in places],
            }
            fresh: set[UUID] = set()
            if has_room:
                sql = (SPEND_QUERY if rules.ticketed else ADD_QUERY).format(id=rules.id)
                fresh = {name for (name,) in db.run(sql, values).fetchall()}
                at("kept")
            # A separate statement, which sees the rows that the previous one waited for.
            sql = f"SELECT name, tag FROM admitted_{rules.id} WHERE name = ANY(%b::uuid[])"  # noqa: S608
            known.update(db.run(sql, ([name for name in first if name not in fresh],)).fetchall())
            at("names")
            self._count(db, {"lease": values["lease"], "id": rules.id, "count": len(fresh)})
            at("counted")
        at("committed")
        verdicts = []
        for place, (name, tag) in enumerate(zip(names, tags, strict=True)):
            if name in fresh:
                is_first = place == first[name]
                is_same = is_first or tag == tags[first[name]]
                verdicts.append(
                    Verdict.STORED
                    if is_first
                    else Verdict.SAME
                    if is_same
                    else Verdict.SPENT_TICKET
                )
            elif name not in known:
                verdicts.append(Verdict.UNKNOWN_TICKET if rules.ticketed else Verdict.FULL)
            elif known[name] is None:
                verdicts.append(Verdict.FULL)
            else:
                verdicts.append(Verdict.SAME if known[name] == tag else Verdict.SPENT_TICKET)
        return verdicts

    @staticmethod
    def _lock_tickets(
        db: PostgresTransaction, number: int, names: list[UUID]
    ) -> dict[UUID, UUID | None]:
        """Lock tickets in the order of their names, so that no two edges deadlock."""
        sql = (
            f"SELECT name, tag FROM admitted_{number} WHERE name = ANY(%b::uuid[]) "  # noqa: S608
            "ORDER BY name FOR UPDATE"
        )
        return dict(db.run(sql, (names,)).fetchall())

    @staticmethod
    def _count(db: PostgresTransaction, values: dict[str, object]) -> None:
        """Count the stored reports in the part, as the last statement, even without any."""
        if db.run(COUNT_QUERY, values).fetchall() == [(True,)]:
            return
        sql = (
            "SELECT NOT closed AND reports + %(count)s > room AND "
            "extract(epoch FROM clock_timestamp()) BETWEEN opens AND until FROM part "
            "WHERE lease = %(lease)s"
        )
        if values["count"] and db.run(sql, values).fetchall() == [(True,)]:
            raise NoRoom("this edge has no room for more reports.")
        raise StoreError(NOT_TAKEN)

    @contextmanager
    def _transaction(self) -> Iterator[PostgresTransaction]:
        with self._server.writing() as db:
            yield db

    def check_writing(self) -> None:
        """Write durably without changing anything; an edge may write to parts only.

        The message is a record of the journal, so the commit waits for a standby. Without it, the
        commit of a transaction that changes no row would not wait.
        """
        with self._database.writing() as db:
            db.execute("SELECT pg_logical_emit_message(true, 'metricshuffle', '')")

    def _store_anchor(self) -> None:
        """Do nothing: an edge decides nothing by time, and its user writes to parts only."""


class HubStore(Store):
    """Store of a hub: all of `Store`, and the parts of leases."""

    def history_trouble(self) -> str:
        database = self._database
        return database.trouble() if isinstance(database, RecordedServer) else ""

    def accept_database(self) -> str:
        database = self._database
        if isinstance(database, RecordedServer):
            return database.accept()
        return super().accept_database()

    def _store_anchor(self) -> None:
        with suppress(DatabaseRolledBack):  # its clock can still be read
            super()._store_anchor()

    def add_part(self, digest: str, lease: bytes) -> float | None:
        """Add the part of a new lease; return its end, or None if no reports are taken any more."""
        with self._database.writing() as db:
            rules = self._load_rules(db, digest, lock=True)
            reading = db.read_clock(self._clock)
            if not rules.first or rules.state != "open" or reading.believed >= rules.until:
                return None
            reading.check()
            room = self._block(rules.maximum - rules.reports)
            self._reserve(db, rules.id, room)
            sql = "INSERT INTO part (lease, collection, opens, until, room) VALUES (?, ?, ?, ?, ?)"
            db.execute(sql, (UUID(bytes=lease), rules.id, rules.opens, rules.until, room))
        return rules.until

    @staticmethod
    def _block(free: int) -> int:
        """Room for one part, given what is free: at least one report if there is any."""
        return min(ROOM_BLOCK, max(1, free // 4), max(0, free))

    @staticmethod
    def _reserve(db: Transaction, number: int, room: int) -> None:
        sql = "UPDATE collection SET reserved = reserved + ? WHERE id = ?"
        db.execute(sql, (room, number))

    def add_room(self, digest: str, lease: bytes) -> PartRow | None:
        """Give an open part more room if it needs some; return the part, None if it is unknown."""
        part = self.part(lease)
        if part is None or part.closed or part.room - part.reports > ROOM_BLOCK // 2:
            return part
        with self._database.writing() as db:
            rules = self._load_rules(db, digest, lock=True)
            room = self._block(rules.maximum - rules.reports)
            if rules.state == "open" and room > 2 * (part.room - part.reports):
                self._reserve(db, rules.id, room)
                sql = "UPDATE part SET room = room + ? WHERE lease = ? AND NOT closed"
                if db.execute(sql, (room, UUID(bytes=lease))).rowcount != 1:
                    raise StoreError(NOT_TAKEN)
        return self.part(lease)

    def part(self, lease: bytes) -> PartRow | None:
        sql = "SELECT room, reports, closed, ended FROM part WHERE lease = ?"
        with self._database.reading() as db:
            line = db.execute(sql, (UUID(bytes=lease),)).fetchone()
        return None if line is None else PartRow(*line)

    def end_part(self, digest: str, lease: bytes) -> None:
        """Close the part of a lease for good: no report is ever stored in it again."""
        with self._closing() as db:
            rules = self._load_rules(db, digest, lock=True)
            db.execute("SET LOCAL lock_timeout = '5s'")
            sql = "SELECT reports - counted, room - counted FROM part WHERE lease = ? FOR UPDATE"
            line = db.execute(sql, (UUID(bytes=lease),)).fetchone()
            if line is None:
                db.confirm(rules)
                return
            sql = (
                "UPDATE part SET closed = true, ended = true, counted = reports, room = reports "
                "WHERE lease = ?"
            )
            db.execute(sql, (UUID(bytes=lease),))
            sql = (
                "UPDATE collection SET reserved = reserved - ?, reports = reports + ? WHERE id = ?"
            )
            # Reports of an aborted collection are deleted, and no longer counted.
            added = line[0] if rules.state == "open" else 0
            db.execute(sql, (line[1], added, rules.id))


def connect_parts(
    url: str, *, is_hub: bool, accept_loss: bool, jump: float, record: HistoryRecord | None = None
) -> Store:
    """Open the database of an edge or a hub; with a record, it must not be older than that."""
    if url.split(":", 1)[0].lower() not in ("postgresql", "postgres"):
        raise StoreError("edges and a hub share a PostgreSQL database: --store postgresql://...")
    if is_hub:
        role: DatabaseRole = "hub, loss accepted" if accept_loss else "hub"
        if record is None:
            return HubStore(PostgresServer(url, role=role), jump=jump)
        return HubStore(RecordedServer(url, role, record), jump=jump)
    edge = PostgresServer(url, role="edge, loss accepted" if accept_loss else "edge")
    return EdgeStore(edge, jump=jump)

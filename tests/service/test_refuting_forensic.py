"""What a shuffler that goes on running has left in its files: its database is still open, so that no end of it tidies up."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.service.conftest import Clock
from tests.service.rounds import HONEST, opened_round, put, secrets_of
from tests.service.test_forensic import found, pieces

from metricshuffle.collection.keys import KeyFolder
from metricshuffle.collection.shuffler.lifecycle import Shuffler
from metricshuffle.collection.store.factory import connect_store

START = 2_000_000_000.0


@pytest.mark.parametrize("end", ["released", "purged", "aborted"])
def test_nothing_is_left_of_reports_tickets_and_keys_while_it_runs(tmp_path: Path, clock: Clock, end: str) -> None:
    clock.stop(START)
    store = connect_store(f"sqlite:///{tmp_path / 'shuffler.db'}", clock)
    shuffler = Shuffler(store, KeyFolder.at(tmp_path / "keys"))
    made = opened_round(shuffler, now=START, tickets=2 * HONEST)
    reports, keys = [made.report(ticket) for ticket in made.tickets[:HONEST]], secrets_of(shuffler, made)
    entries = [made.entry(report, keys) for report in reports]
    put(shuffler, made, reports)
    needles = {
        "reports": [piece for report in reports for piece in pieces(report)],
        "hidden": [piece for entry in entries for piece in pieces(entry.hidden)],
        "tags": [entry.tag for entry in entries],
        "tickets": [*made.tickets, *(keys.ticket_hash(ticket) for ticket in made.tickets)],
        "keys": [keys.secret[start : start + 16] for start in range(0, 64, 16)],
    }
    before = found(needles, [tmp_path], without="/nowhere")
    assert [kind for kind in needles if before[kind]] == ["hidden", "tags", "tickets", "keys"]
    if end == "aborted":
        shuffler.abort(made.digest, "enough")
    else:
        clock.ahead = 60
        assert shuffler.advance(made.digest) == "released"
        if end == "purged":
            store.acknowledge(made.digest)
            assert shuffler.advance(made.digest) == "purged"
    assert found(needles, [tmp_path], without="/nowhere") == {kind: set() for kind in needles}
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} <= {".db", ".db-wal", ".db-shm", ".token", ".id", ".boxes"}
    store.close()


def test_a_secret_that_is_destroyed_is_overwritten_first(tmp_path: Path) -> None:
    """Another name of the same file shows what lies where it lay."""
    keys = KeyFolder.at(tmp_path / "keys")
    made = keys.new()
    (path,) = keys.path.glob("*.key")
    (tmp_path / "another name").hardlink_to(path)
    keys.destroy(made.party.key)
    left = (tmp_path / "another name").read_bytes()
    assert not path.exists()
    assert len(left) == len(made.secret)
    assert not any(made.secret[start : start + 4] in left for start in range(0, 64, 4))

"""Two shufflers with folders of their own on one database: neither ends, nor lets go, what the other has the secrets of."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.service.conftest import Clock
from tests.service.rounds import HONEST, opened_round, put
from tests.service.running import posted, report_of, running

from metricshuffle.errors import InputError
from metricshuffle.service.keys import KeyFolder
from metricshuffle.service.states import Shuffler
from metricshuffle.service.store import Store, StoreError

START = 2_000_000_000.0


def test_what_has_its_keys_in_another_folder_is_left_alone(store: Store, tmp_path: Path, clock: Clock) -> None:
    """Open, sealed and in the moment between shuffling and destroying the keys, which is when it would be let go too early."""
    clock.stop(START)
    other = Shuffler(store, KeyFolder.at(tmp_path / "other"), abandon=False)
    tried: list[str] = []

    def at(point: str) -> None:
        if point in ("sealing", "sealed", "mixing", "shuffled", "forgotten"):
            before = store.row(made.digest)
            with pytest.raises(StoreError, match=r"are not in .*other: another shuffler"):
                other.advance(made.digest)
            assert store.row(made.digest) == before
            tried.append(before.state if before is not None else "")

    own = Shuffler(store, KeyFolder.at(tmp_path / "own"), at=at, abandon=False)
    made = opened_round(own, now=START)
    put(own, made, [made.report() for _ in range(HONEST)])
    clock.ahead = 60
    assert own.advance(made.digest) == "released"
    assert tried == ["open", "sealed", "sealed", "shuffled", "shuffled"]
    assert own.keys.names() == []


def test_a_lost_folder_is_given_up_when_that_is_said(store: Store, tmp_path: Path, clock: Clock) -> None:
    clock.stop(START)
    own = Shuffler(store, KeyFolder.at(tmp_path / "own"))
    made = opened_round(own, now=START)
    other = Shuffler(store, KeyFolder.at(tmp_path / "other"))
    with pytest.raises(InputError, match="--abandon"):
        other.check_keys()
    assert other.advance(made.digest) == "aborted"
    assert own.advance(made.digest) == "aborted"
    assert own.keys.names() == []  # whoever has them destroys them


@pytest.mark.thorough
def test_two_servers_with_folders_of_their_own(tmp_path: Path, new_store_url: Callable[[], str]) -> None:
    """Both run when the collection is opened, so that neither could refuse to start."""
    url = new_store_url()
    with running(tmp_path / "one", url) as one, running(tmp_path / "two", url) as two:
        collection = one.opened(lasts=4)
        statuses = posted(collection.url, [report_of(collection) for _ in range(8)]).statuses
        assert statuses == [204] * 8
        elsewhere = collection.url.replace(one.url, two.url)
        assert posted(elsewhere, [report_of(collection)], 1).statuses == [503]
        deadline = time.monotonic() + 60
        while (told := one.operator.status(collection.digest))["state"] in ("open", "sealed", "shuffled", "erased"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (told["state"], told["people"]) == ("released", 8)
        assert KeyFolder(one.keys).names() == []
        assert "another shuffler of this database" in two.log

"""Analyst of a collection: downloads the output, opens it, estimates, and acknowledges it."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from metricshuffle.collection.adder.sum_terms import (
    AnyCollection,
    load_any,
    only_sum,
    without_sums,
)
from metricshuffle.collection.analyst.collector import (
    Collecting,
    InconsistentMessagesError,
    ReleaseCollector,
)
from metricshuffle.collection.analyst.download import RETRY_SECONDS, FetchedOutput, NotReleased
from metricshuffle.collection.analyst.sum_collector import SumCollecting
from metricshuffle.collection.client.http_client import EXTRA, run_sync
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.terms import PinnedDocument
from metricshuffle.errors import InputError, InputWarning, require
from metricshuffle.files import atomic_file, deferred_interrupts
from metricshuffle.planning.costs.release_ledger import EVERYBODY, Budget, validate_group_name
from metricshuffle.tasks.release import Release

CollectionSource = str | Path | AnyCollection


class Analyst:
    """Owner of the key that messages are sealed for.

    A small file next to the key records which output was fetched; another output of the same
    collection is rejected.

    Args:
        key: path of the key file (`metricshuffle analyst key`), or the key.
        processes: number of processes that open messages; None for one per processor.
        patience: seconds for which an unreachable shuffler is asked again.
    """

    def __init__(
        self,
        key: str | Path | AnalystKey,
        *,
        processes: int | None = None,
        patience: float = RETRY_SECONDS,
    ) -> None:
        require("cryptography.hazmat.primitives.hpke", EXTRA)
        self._key = key if isinstance(key, AnalystKey) else key_of(key)
        self._processes = processes
        self._patience = patience
        self._key_file = None if isinstance(key, AnalystKey) else Path(os.path.realpath(key))

    @property
    def public(self) -> str:
        """Public key for the operator of a collection."""
        return self._key.public

    def collecting(
        self, collection: CollectionSource | Sequence[CollectionSource]
    ) -> ReleaseCollector:
        """Return the collector that runs the steps of `collect`."""
        several = (
            [collection]
            if isinstance(collection, str | Path | PinnedDocument)
            else list(collection)
        )
        if not several:
            raise InputError("there is no collection to collect.")
        loaded: list[AnyCollection] = [
            load_any(source) if isinstance(source, str | Path) else source for source in several
        ]
        collection_of_sum = only_sum(loaded)
        if collection_of_sum is not None:
            return SumCollecting(self._key, collection_of_sum, self._patience, self._key_file)
        collections = without_sums(loaded)
        return Collecting(self._key, collections, self._processes, self._patience, self._key_file)

    def collect(
        self,
        collection: CollectionSource | Sequence[CollectionSource],
        output: str | Path,
        *,
        budget: Budget | None = None,
        people: str = EVERYBODY,
    ) -> Release:
        """Write the release of a collection, or of parts of a split, to `output`; acknowledge it.

        After an interruption the same call continues: downloads remain next to the output until the
        release is written. A `budget` counts it, as in `Plan.estimate`. Raises if the collection is
        not released yet.
        """
        return run_sync(self.collect_async(collection, output, budget=budget, people=people))

    async def collect_async(
        self,
        collection: CollectionSource | Sequence[CollectionSource],
        output: str | Path,
        *,
        budget: Budget | None = None,
        people: str = EVERYBODY,
    ) -> Release:
        """Asynchronous `collect`."""
        collecting = self.collecting(collection)
        try:
            files = await collecting.fetched(output)
        except NotReleased as error:
            saved_release = collecting.already(output) if error.gone else None
            if saved_release is None:
                raise
            return saved_release
        release = await asyncio.to_thread(
            _write_release, collecting, files, output, budget, validate_group_name(people)
        )
        for trouble in await collecting.acknowledge(files):
            warnings.warn(trouble, InputWarning, stacklevel=2)
        return release

    def __repr__(self) -> str:
        return f"Analyst({self.public[:24]}...)"


def key_of(path: str | Path) -> AnalystKey:
    """Read the key in a file."""
    try:
        return AnalystKey.load(path)
    except OSError as error:
        raise InputError(
            f"cannot read the analyst's key {path}: {error.strerror or error}."
        ) from None


def _write_release(
    collecting: ReleaseCollector,
    files: Sequence[FetchedOutput],
    output: str | Path,
    budget: Budget | None,
    people: str,
) -> Release:
    """Write the release durably; a budget records it before its file appears."""
    with ExitStack() as stack:
        account = stack.enter_context(budget.opened()) if budget is not None else None
        try:
            release = collecting.release(files)
        except InconsistentMessagesError as error:
            if account is not None:
                account.record(collecting.task, error.shuffled, people)
            raise
        with deferred_interrupts(), atomic_file(output) as stream:
            stream.write(release.to_json() + "\n")
            stream.flush()
            os.fsync(stream.fileno())
            if account is not None:
                account.record(collecting.task, release.shuffled, people)
    return release

"""The analyst of a collection: fetches what was let go, opens it, estimates, and says that it is safe."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from metricshuffle.errors import InputError, InputWarning, require
from metricshuffle.files import uninterrupted, whole_file
from metricshuffle.planning.budget import EVERYBODY, Budget, checked_people
from metricshuffle.service.collecting import Collecting, Spoiled
from metricshuffle.service.collection import Collection
from metricshuffle.service.fetching import PATIENCE, Fetched, NotReleased
from metricshuffle.service.keys import AnalystKey
from metricshuffle.service.sending import EXTRA, waited
from metricshuffle.wire.release import Release

Given = str | Path | Collection


class Analyst:
    """Whoever holds the key that messages are sealed for, as `metricshuffle analyst key` made it (`key`: the path of that file).

    Messages are opened in several `processes`, as many as there are processors unless it is said. `patience`: seconds for which a
    shuffler that does not answer is asked again. Beside the key a small file notes which set of messages was fetched: another set of
    the same collection is refused.
    """

    def __init__(self, key: str | Path | AnalystKey, *, processes: int | None = None, patience: float = PATIENCE) -> None:
        require("cryptography.hazmat.primitives.hpke", EXTRA)
        self._key, self._processes, self._patience = key if isinstance(key, AnalystKey) else key_of(key), processes, patience
        self._key_file = None if isinstance(key, AnalystKey) else Path(os.path.realpath(key))

    @property
    def public(self) -> str:
        """What the operator of a collection is given."""
        return self._key.public

    def collecting(self, collection: Given | Sequence[Given]) -> Collecting:
        """The steps of `collect`, one by one."""
        several = [collection] if isinstance(collection, str | Path | Collection) else list(collection)
        if not several:
            raise InputError("there is no collection to collect.")
        read = [given if isinstance(given, Collection) else Collection.load(given) for given in several]
        return Collecting(self._key, read, self._processes, self._patience, self._key_file)

    def collect(
        self, collection: Given | Sequence[Given], output: str | Path, *, budget: Budget | None = None, people: str = EVERYBODY
    ) -> Release:
        """The release of a collection (or of the parts of a split, in one estimate), written to `output` and then acknowledged.

        Whatever stops it, the same call again goes on: what was fetched lies beside the output until the release is there. A `budget`
        counts it, as `Plan.estimate` does. Raises while the collection is not released.
        """
        return waited(self.collect_async(collection, output, budget=budget, people=people))

    async def collect_async(
        self, collection: Given | Sequence[Given], output: str | Path, *, budget: Budget | None = None, people: str = EVERYBODY
    ) -> Release:
        """The same without blocking."""
        collecting = self.collecting(collection)
        try:
            files = await collecting.fetched(output)
        except NotReleased as wrong:
            known = collecting.already(output) if wrong.gone else None
            if known is None:
                raise
            return known
        release = await asyncio.to_thread(_written, collecting, files, output, budget, checked_people(people))
        for trouble in await collecting.acknowledge(files):
            warnings.warn(trouble, InputWarning, stacklevel=2)
        return release

    def __repr__(self) -> str:
        return f"Analyst({self.public[:24]}...)"


def key_of(path: str | Path) -> AnalystKey:
    """The key in a file, or a sentence."""
    try:
        return AnalystKey.load(path)
    except OSError as wrong:
        raise InputError(f"cannot read the analyst's key {path}: {wrong.strerror or wrong}.") from None


def _written(collecting: Collecting, files: Sequence[Fetched], output: str | Path, budget: Budget | None, people: str) -> Release:
    """The release, durable; it is noted before it appears, so that none is seen that does not count."""
    with ExitStack() as stack:
        account = stack.enter_context(budget.opened()) if budget is not None else None
        try:
            release = collecting.release(files)
        except Spoiled as wrong:
            if account is not None:
                account.record(collecting.task, wrong.shuffled, people)
            raise
        with uninterrupted(), whole_file(output) as stream:
            stream.write(release.to_json() + "\n")
            stream.flush()
            os.fsync(stream.fileno())
            if account is not None:
                account.record(collecting.task, release.shuffled, people)
    return release

"""Messages that a later hop fetched: it removes one layer of each, and mixes them again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from metricshuffle.collection.keys import CollectionKeys
from metricshuffle.collection.output_runs import OutputRuns, head_size
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.collection.shuffler.dummy_boxes import DummyBoxes, PileBox, PileMixing
from metricshuffle.collection.shuffler.external_sort import ExternalSort, SortResult
from metricshuffle.collection.shuffler.upstream import UpstreamLink
from metricshuffle.errors import PlanError

BOXES_PER_PART = 4096
DAMAGED_FETCH = "what was fetched from the shuffler before this one is damaged here."


@dataclass(frozen=True)
class FetchedBoxes:
    """File with the output of the previous hop.

    A box that does not open, or that has the same content as another, is replaced by a box that no
    key opens. So the analyst sees that a message is missing, and a bad box cannot spoil a whole
    collection. What replaces it depends on the keys of this hop; otherwise a client could send the
    replacement of one box as the content of the next.
    """

    link: UpstreamLink
    path: Path
    people: int
    memory: int

    @cached_property
    def runs(self) -> OutputRuns:
        with open(self.path, "rb") as stream:
            return self.link.runs_of(self.people, stream.read(head_size(self.link.collection)))

    @property
    def _inside(self) -> int:
        """Bytes of an opened box."""
        return self.link.collection.sealing.box_size(self.link.layer - 1)

    def mix(self, keys: CollectionKeys, stream: IO[bytes]) -> SortResult:
        """Open and sort all boxes together."""
        [count] = self.runs.lengths

        def sort(spoiled: frozenset[int]) -> ExternalSort:
            return ExternalSort(
                lambda: (box for _, box in self._opened(keys, spoiled)),
                self._inside,
                1,
                count,
                self.memory,
            )

        mixed = sort(frozenset()).written(stream)
        if mixed.shared:
            mixed = sort(mixed.shared).written(stream)
        if mixed.reports != count or mixed.shared:
            raise PlanError(DAMAGED_FETCH)
        return mixed

    def mix_piles(self, dummies: DummyBoxes, file: Path, stream: IO[bytes]) -> SortResult:
        """Open boxes, and mix those of each pile with the dummies of this hop."""
        keys = dummies.keys
        count = sum(self.runs.lengths)

        twice = ExternalSort(
            lambda: (box for _, box in self._boxes()), self.runs.size, 1, count, self.memory
        ).find_shared()[1]
        if twice:
            raise PlanError(
                "the shuffler before this one handed over a message in two piles, or twice in one."
            )
        spoiled = ExternalSort(
            lambda: (box for _, box in self._opened(keys, frozenset())),
            self._inside,
            1,
            count,
            self.memory,
        ).find_shared()[1]
        mixing = PileMixing(
            lambda: self._opened(keys, spoiled), self.runs.lengths, dummies, file, self.memory
        )
        return mixing.written(stream)

    def _opened(self, keys: CollectionKeys, spoiled: frozenset[int]) -> Iterator[PileBox]:
        sealing = self.link.collection.sealing
        for number, (pile, box) in enumerate(self._boxes()):
            try:
                content = sealing.open_box(box, keys.private, self.link.layer, pile)
            except NotOpened:
                content = keys.replacement(box, self._inside)
            yield pile, keys.replacement(box, self._inside) if number in spoiled else content

    def _boxes(self) -> Iterator[PileBox]:
        size = self.runs.size
        with open(self.path, "rb") as stream:
            stream.seek(len(self.runs.head))
            for pile, part in self.runs.read_parts(stream, BOXES_PER_PART):
                if not part or len(part) % size:
                    raise PlanError(DAMAGED_FETCH)
                for start in range(0, len(part), size):
                    yield pile, part[start : start + size]
            if stream.read(1):
                raise PlanError(DAMAGED_FETCH)

"""Tags of the stored reports of one collection, in memory: a sorted array and a recent set.

An index with random keys would touch another page of the file for every report. Reports are
therefore appended, and these tags show which are stored. Tags are read from committed rows only, so
a transaction that is rolled back leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

MAX_RECENT_TAGS = 2**16
"""Number of tags at which the set is merged into the array, where a tag has 16 bytes."""


class KnownTags:
    """Set of tags of 16 bytes, for millions of them."""

    def __init__(self) -> None:
        self._sorted: npt.NDArray[np.bytes_] = np.empty(0, "S16")
        self._recent: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    def add(self, tags: Iterable[bytes]) -> None:
        """Add tags that are not in the set yet."""
        self._recent.update(tags)
        if len(self._recent) > MAX_RECENT_TAGS:
            added = np.sort(np.array(list(self._recent), "S16"))
            self._sorted = np.insert(self._sorted, np.searchsorted(self._sorted, added), added)
            self._recent = set()

    def known(self, tags: Iterable[bytes]) -> set[bytes]:
        """Return the given tags that are in the set."""
        wanted = list(tags)
        known = {tag for tag in wanted if tag in self._recent}
        if wanted and len(self._sorted):
            # numpy ignores trailing zeros, which does not matter at equal lengths.
            needles = np.array(wanted, "S16")
            places = np.minimum(np.searchsorted(self._sorted, needles), len(self._sorted) - 1)
            is_known = self._sorted[places] == needles
            known.update(tag for tag, is_in in zip(wanted, is_known, strict=True) if is_in)
        return known

"""Reasons for which a collection cannot continue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from metricshuffle.collection.store.records import DatabaseDamaged
from metricshuffle.errors import MetricShuffleError, PlanError

MISSING_KEYS = "its keys are missing: they were destroyed, or its database is older than they are"
OUTPUT_MISMATCH = "its output is not what its reports give: its database is older, or was changed"
DAMAGED_OUTPUT = "its output is damaged, in the file and in the database"
LOST_DUMMIES = "the dummies that it drew are lost or damaged; no others may be drawn"
NOT_FETCHED = "the shuffler before this one did not release it in time"
NOT_COLLECTED = "not collected"


class CollectionFailed(MetricShuffleError):
    """A collection cannot continue; the message is the public reason."""


class CountingOver(Exception):
    """The time for counting distinct reports is over."""


@contextmanager
def damage_errors() -> Iterator[None]:
    """Abort a collection whose reports can never be read."""
    try:
        yield
    except DatabaseDamaged:
        raise CollectionFailed(
            "its database is damaged: it does not contain the reports that it counted"
        ) from None
    except PlanError as error:
        raise CollectionFailed(str(error).rstrip(".")) from None

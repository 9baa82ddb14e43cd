"""The record of a live collection: reports and answers, states, and the release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.tasks.release import Release


@dataclass(frozen=True)
class Posts:
    """Reports of one kind that were sent, and how they were answered."""

    kind: str
    sent: int
    answer: str


@dataclass(frozen=True)
class LiveRound:
    """`states` have the seconds since the collection opened; `kept` reports were stored before the
    kill, and after it.
    """

    people: int
    posts: Sequence[Posts]
    states: Sequence[tuple[str, float]]
    acknowledged: int
    kept: int
    digest: str
    truth: float
    release: Release
    seconds: float

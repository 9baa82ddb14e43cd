"""A collection that was really run: who sent what and was answered how, which states it went through, and what came out."""

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
    """`states` are told with the seconds since the collection opened; `kept` of the reports were there before the kill, and after it."""

    people: int
    posts: Sequence[Posts]
    states: Sequence[tuple[str, float]]
    acknowledged: int
    kept: int
    digest: str
    truth: float
    release: Release
    seconds: float

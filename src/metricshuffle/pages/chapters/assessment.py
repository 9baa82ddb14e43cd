"""For an assessment: paragraphs to paste."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.pages.words import Study
from metricshuffle.pages.words import assessment as paragraphs_of


@dataclass(frozen=True)
class Text:
    title: str
    paragraphs: tuple[tuple[str, str], ...]
    """What each is about, and what it says."""


@dataclass(frozen=True)
class Assessment:
    texts: tuple[Text, ...]


def assessment(*studies: Study) -> Assessment:
    return Assessment(tuple(Text(study.title, tuple(map(_split, paragraphs_of(study)))) for study in studies))


def _split(paragraph: str) -> tuple[str, str]:
    heading, _, words = paragraph.partition(". ")
    return heading, words

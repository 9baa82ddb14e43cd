"""For an assessment: paragraphs to paste."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.report.assessment_text import Study
from metricshuffle.report.assessment_text import assessment as paragraphs_of
from metricshuffle.report.report_subject import Collection


@dataclass(frozen=True)
class Text:
    title: str
    paragraphs: tuple[tuple[str, str], ...]
    """What each is about, and what it says."""


@dataclass(frozen=True)
class Assessment:
    texts: tuple[Text, ...]


def assessment(*studies: Study) -> Assessment:
    return Assessment(tuple(_text(study.title, paragraphs_of(study.collection, study.asked)) for study in studies))


def assess_collection(collection: Collection) -> Assessment:
    query = str(collection.task.query)
    return Assessment((_text(collection.task.title or f"{query[:1].upper()}{query[1:]}", paragraphs_of(collection)),))


def _text(title: str, paragraphs: Sequence[str]) -> Text:
    return Text(title, tuple(map(_split, paragraphs)))


def _split(paragraph: str) -> tuple[str, str]:
    heading, _, words = paragraph.partition(". ")
    return heading, words

"""Assessment chapter of the report: paragraphs to paste into an assessment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metricshuffle.report.assessment_text import Study
from metricshuffle.report.assessment_text import assessment as paragraphs_of
from metricshuffle.report.report_subject import ReportSubject


@dataclass(frozen=True)
class Text:
    title: str
    paragraphs: tuple[tuple[str, str], ...]
    """Heading and text of each paragraph."""


@dataclass(frozen=True)
class Assessment:
    texts: tuple[Text, ...]


def assessment(*studies: Study) -> Assessment:
    return Assessment(
        tuple(_text(study.title, paragraphs_of(study.collection, study.asked)) for study in studies)
    )


def assess_collection(subject: ReportSubject) -> Assessment:
    query = str(subject.task.query)
    return Assessment(
        (
            _text(
                subject.task.title or f"{query[:1].upper()}{query[1:]}",
                paragraphs_of(subject),
            ),
        )
    )


def _text(title: str, paragraphs: Sequence[str]) -> Text:
    return Text(title, tuple(map(_split, paragraphs)))


def _split(paragraph: str) -> tuple[str, str]:
    heading, _, words = paragraph.partition(". ")
    return heading, words

"""Methods, to cite: paragraphs with references."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.report.method_text import describe_methods, find_method
from metricshuffle.report.report_subject import Collection


@dataclass(frozen=True)
class MethodsChapter:
    paragraphs: tuple[str, ...]
    references: tuple[str, ...]
    """In the order of their numbers."""


def methods(collection: Collection) -> MethodsChapter:
    reports = None if collection.release is None else collection.release.reports
    return MethodsChapter(tuple(describe_methods(collection.task, reports)), find_method(collection.task).references)

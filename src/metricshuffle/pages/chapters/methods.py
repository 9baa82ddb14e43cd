"""Methods, to cite: paragraphs with references."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.pages.collection import Collection
from metricshuffle.pages.methods import method_of, methods_text


@dataclass(frozen=True)
class MethodsChapter:
    paragraphs: tuple[str, ...]
    references: tuple[str, ...]
    """In the order of their numbers."""


def methods(collection: Collection) -> MethodsChapter:
    reports = None if collection.release is None else collection.release.reports
    return MethodsChapter(tuple(methods_text(collection.task, reports)), method_of(collection.task).references)

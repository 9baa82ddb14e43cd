"""What came out: the picture of a release, and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.queries.result_table import Table as AnswerTable
from metricshuffle.report.charts.answer_charts import answer_chart
from metricshuffle.report.components import Figure, Table
from metricshuffle.report.map_page import numbers_table
from metricshuffle.report.report_subject import Collection
from metricshuffle.tasks.release import Release, measured

MIN_FULL_WIDTH = 560


@dataclass(frozen=True)
class AnswerChapter:
    facts: tuple[tuple[str, str], ...]
    figure: Figure
    small: bool
    """The picture is narrow, and would have huge letters if it were as wide as the page."""
    numbers: Table
    left_out: str
    """How many rows are not shown, in words, if any."""
    remarks: tuple[str, ...]


def answer(collection: Collection) -> AnswerChapter | None:
    release = collection.release
    if release is None:
        return None
    chart = answer_chart(release, name="fig-answer")
    numbers, left_out = numbers_table(release, 0.95)
    caption = f"{chart.title}. {chart.description} Intervals are about the noise, not about people who did not take part."
    remarks = tuple(release.remarks)
    chart_drawing = chart.drawing()
    small = chart_drawing.width < MIN_FULL_WIDTH
    return AnswerChapter(tuple(_facts(collection, release)), Figure(chart_drawing, caption), small, numbers, left_out, remarks)


def answer_text(release: Release) -> str:
    """The answer in a few words, for a heading; of a table, what it is about."""
    query = release.query
    if isinstance(release.value, AnswerTable):
        return f"A {query.title} of {release.reports:,} people"
    unit = f" {query.unit}" if query.unit and release.plane is None else ""
    return f"The {query.title} is {measured(release.value, release.decimals)}{unit}"


def _facts(collection: Collection, release: Release) -> list[tuple[str, str]]:
    facts = collection.facts
    lines = []
    if not isinstance(release.value, AnswerTable):
        unit = facts.spaced_unit if release.plane is None else " degrees"
        lines.append(("95 % interval", f"{measured(release.answer.interval, release.decimals)}{unit}"))
        if release.plane is not None:
            release_view = collection.release_facts
            assert release_view is not None  # noqa: S101 - there is a release
            lines.append(
                (
                    "from the corner",
                    f"{release_view.value_text}{facts.spaced_unit} (east, north), 95 % interval {release_view.interval_text}",
                )
            )
    people = "users" if facts.items_each else "reports"
    lines.append((people, f"{release.reports:,} (planned {facts.users:,}, at least {max(facts.minimum, 1):,})"))
    if facts.rounds > 1:
        lines.append(("round", f"{release.round} of {facts.rounds}"))
    lines.append((release.query.measure.split(",")[0], collection.expected_error))
    lines.append(("protocol", ", ".join(filter(None, (facts.protocol, facts.encoding, f"{facts.bits_per_user:,} bits a person")))))
    return lines

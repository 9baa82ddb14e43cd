"""Chapter on the answer of a release: its chart and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from metricshuffle.queries.result_table import Table as AnswerTable
from metricshuffle.report.charts.answer_charts import answer_chart
from metricshuffle.report.components import Figure, TextTable
from metricshuffle.report.map_page import numbers_table
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.tasks.release import Release, measured

MIN_FULL_WIDTH = 560


@dataclass(frozen=True)
class AnswerChapter:
    text: str
    """The answer in one line, for a heading."""
    interval: str
    """Its 95 % interval; empty for a table."""
    facts: tuple[tuple[str, str], ...]
    figure: Figure
    small: bool
    """Whether the chart is so narrow that its letters would be huge at full page width."""
    numbers: TextTable
    left_out: str
    """Note about omitted rows; empty if there are none."""
    remarks: tuple[str, ...]


def answer(subject: ReportSubject) -> AnswerChapter | None:
    release = subject.release
    if release is None:
        return None
    chart = answer_chart(release, name="fig-answer")
    numbers, left_out = numbers_table(release, 0.95)
    caption = (
        f"{chart.title}. {chart.description} Intervals are about the noise, not about people "
        "who did not take part."
    )
    remarks = tuple(release.remarks)
    chart_drawing = chart.drawing()
    small = chart_drawing.width < MIN_FULL_WIDTH
    return AnswerChapter(
        answer_text(release),
        _interval_text(subject, release),
        tuple(_facts(subject, release)),
        Figure(chart_drawing, caption),
        small,
        numbers,
        left_out,
        remarks,
    )


def answer_text(release: Release) -> str:
    """The answer as a heading; for a table, what it is about."""
    query = release.query
    if isinstance(release.value, AnswerTable):
        return f"A {query.title} of {release.reports:,} people"
    unit = f" {query.unit}" if query.unit and release.plane is None else ""
    return f"The {query.title} is {measured(release.value, release.decimals)}{unit}"


def _interval_text(subject: ReportSubject, release: Release) -> str:
    if isinstance(release.value, AnswerTable):
        return ""
    unit = subject.facts.spaced_unit if release.plane is None else " degrees"
    return f"{measured(release.answer.interval, release.decimals)}{unit}"


def _facts(subject: ReportSubject, release: Release) -> list[tuple[str, str]]:
    facts = subject.facts
    lines = []
    if not isinstance(release.value, AnswerTable) and release.plane is not None:
        release_view = subject.release_facts
        assert release_view is not None  # noqa: S101 - there is a release
        lines.append(
            (
                "from the corner",
                f"{release_view.value_text}{facts.spaced_unit} (east, north), 95 % "
                f"interval {release_view.interval_text}",
            )
        )
    people = "users" if facts.items_each else "reports"
    lines.append(
        (
            people,
            f"{release.reports:,} (planned {facts.users:,}, at least {max(facts.minimum, 1):,})",
        )
    )
    if facts.rounds > 1:
        lines.append(("round", f"{release.round} of {facts.rounds}"))
    lines.append((release.query.measure.split(",")[0], subject.expected_error))
    lines.append(
        (
            "protocol",
            ", ".join(
                filter(
                    None, (facts.protocol, facts.encoding, f"{facts.bits_per_user:,} bits a person")
                )
            ),
        )
    )
    return lines

"""Page of `metricshuffle map`: the chart of one release, its guarantees and its numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metricshuffle.numerics.rounding import format_number
from metricshuffle.planning.plan_text import expected_error_text
from metricshuffle.queries.cell_table import label_of
from metricshuffle.queries.result_table import Table as Rows
from metricshuffle.report.answer_export import Columns, answer_columns
from metricshuffle.report.charts.answer_charts import (
    answer_chart,
    is_on_a_line,
    largest_error,
    share_label,
)
from metricshuffle.report.charts.interval_charts import percent
from metricshuffle.report.charts.map_layers import Background
from metricshuffle.report.components import Figure, GuaranteeLine, TextTable
from metricshuffle.report.plan_view import release_facts
from metricshuffle.report.template_engine import render_template
from metricshuffle.spaces import Grid, ZonePairs, Zones
from metricshuffle.tasks.release import Release, measured

MAX_TABLE_ROWS = 500
"""Maximum rows of the table on the page; a CSV file has all."""


def page(
    release: Release,
    level: float = 0.95,
    background: Background | None = None,
    *,
    template: str = "release_map.html.jinja",
    **more: object,
) -> str:
    """Return one self-contained HTML document; `more` is what another template needs."""
    chart = answer_chart(release, level, name="map", background=background)
    numbers, left_out = numbers_table(release, level)
    return render_template(
        template,
        heading=_heading(release),
        title=release.title,
        question=release.question,
        asked=sentence(str(release.query)),
        people=_people(release),
        figure_of_answer=Figure(chart.drawing(), sentence(chart.description)),
        promises=_promises(release),
        remarks=[
            *filter(None, [" ".join(_precision_sentences(release, level))]),
            *map(sentence, release.remarks),
        ],
        spoiled=release_facts(release).spoiled,
        numbers=numbers,
        left_out=left_out,
        task=release.plan,
        **more,
    )


def sentence(words: str) -> str:
    """Capitalize the first letter and end with a full stop."""
    return f"{words[:1].upper()}{words[1:].removesuffix('.')}."


def _heading(release: Release) -> str:
    query = release.query
    if isinstance(query.values_in, Grid | Zones) and query.shared:
        return "Where people are" if query.items is None else "Where people spend their time"
    if isinstance(query.values_in, ZonePairs):
        return "Where people go"
    if isinstance(release.value, Rows) and query.shared:
        return (
            "How many people hold what" if query.items is None else "What people hold, on average"
        )
    return f"The {query.title} of {release.reports:,} people"


def _people(release: Release) -> str:
    counted = f"{release.reports:,} {'people' if release.query.items is not None else 'reports'}"
    rounds = "" if release.rounds == 1 else f", round {release.round} of {release.rounds}"
    return f"From {counted} ({release.protocol}){rounds}."


def _precision_sentences(release: Release, level: float) -> list[str]:
    """Sentences about the accuracy of the answer."""
    query = release.query
    errors = np.asarray(answer_columns(release, level).get("standard_error", []), dtype=np.float64)
    sentences = []
    if release.estimate.smoothed:
        sentences.append("These shares are smoothed and have no interval.")
    elif query.in_percent or query.shared:
        smallest, largest = (percent(float(part)) for part in (errors.min(), errors.max()))
        sentences.append(
            "The standard error of a share is "
            f"{smallest if smallest == largest else f'{smallest} to {largest}'}."
        )
    elif isinstance(release.value, Rows) and errors.size and not query.in_percent:
        sentences.append(
            f"The standard error of a {query.row_name} is {format_number(float(errors.min()))} to "
            f"{format_number(float(errors.max()))}."
        )
    if release.expected_error is not None:
        sentences.append(
            f"{query.measure[:1].upper()}{query.measure[1:]}: "
            f"{expected_error_text(query, release.expected_error)}."
        )
    return sentences


def _promises(release: Release) -> list[GuaranteeLine]:
    trusted = release.guarantee.trust.trusted
    if trusted == "nobody":
        promises = [GuaranteeLine("Whoever colludes", str(release.guarantee))]
    else:
        promises = [
            GuaranteeLine(f"If the {trusted} is honest", str(release.guarantee)),
            GuaranteeLine("If it is not", str(release.if_shuffler_colludes), broken=True),
        ]
    if release.query.items is not None:
        promises.append(
            GuaranteeLine("What that is not", release.task.full_replacement, broken=True)
        )
    return promises


def numbers_table(release: Release, level: float) -> tuple[TextTable, str]:
    """Return the answer as a readable table, and a note about omitted rows (or "")."""
    columns = answer_columns(release, level)
    level_text = f"{100.0 * level:g}"
    if not release.query.shared:
        written = percent if release.query.in_percent else _number_formatter(release)
        ends = {f"low_{level_text}": f"{level_text} % from", f"high_{level_text}": "to"}
        head_of = {
            "value": "value",
            "share": "share",
            "mean": "mean",
            "standard_error": "standard error",
            **ends,
        }
        if "mean" in columns:
            head_of |= {"count": "people", **{f"count_{end}": ends[end] for end in ends}}
        shown_names = [name for name in head_of if name in columns]
        rows = [
            (str(label), *map(written, numbers))
            for label, *numbers in zip(
                columns["label"], *(columns[name] for name in shown_names), strict=True
            )
        ]
        return TextTable(
            ("", *(head_of[name] for name in shown_names)),
            rows[:MAX_TABLE_ROWS],
            tuple(range(1, 1 + len(shown_names))),
        ), _left_out(len(rows))
    shares = np.asarray(columns["share"], dtype=np.float64)
    order = (
        np.arange(len(shares))
        if is_on_a_line(release.query) and len(shares) <= MAX_TABLE_ROWS
        else np.argsort(-shares, kind="stable")
    )
    places, head = _place_names(release, columns)
    titles = {
        "share": "share",
        "standard_error": "standard error",
        f"low_{level_text}": f"{level_text} % from",
        f"high_{level_text}": "to",
        "zero_inside": "holds zero",
        f"at_most_{level_text}": f"at most ({level_text} %)",
        "nearby": _nearby_head(release),
        f"nearby_low_{level_text}": f"{level_text} % from",
        f"nearby_high_{level_text}": "to",
    }
    shown_names = [name for name in titles if name in columns]
    rows = []
    error = largest_error(columns.get("standard_error"))

    def cell(name: str, code: int) -> str:
        if name == "zero_inside":
            return "yes" if columns[name][code] else "no"
        return percent(columns[name][code], 0.0 if name == "standard_error" else error)

    for code in order[:MAX_TABLE_ROWS].tolist():
        rows.append(
            (*(place[code] for place in places), *(cell(name, code) for name in shown_names))
        )
    heads = (*head, *(titles[name] for name in shown_names))
    numeric = range(
        0 if isinstance(release.query.values_in, Grid) else 1,
        len(heads) - ("zero_inside" in shown_names),
    )
    return TextTable(
        heads, rows, tuple(numeric), caption=sentence(share_label(release))
    ), _left_out(len(shares))


def _nearby_head(release: Release) -> str:
    nearby = release.estimate.nearby
    return "" if nearby is None else nearby.words


def _left_out(rows: int) -> str:
    return (
        f"The {MAX_TABLE_ROWS:,} largest of {rows:,} rows; a .csv file has all."
        if rows > MAX_TABLE_ROWS
        else ""
    )


def _number_formatter(release: Release) -> Callable[[float], str]:
    if isinstance(release.value, Rows):
        return format_number
    return lambda number: measured(number, release.decimals)


def _place_names(release: Release, columns: Columns) -> tuple[list[list[str]], tuple[str, ...]]:
    """Columns that locate each row: centres of cells, numbers or labels."""
    grid = release.query.values_in
    if not isinstance(grid, Grid):
        named = [label_of(columns, code) for code in range(len(columns["share"]))]
        unit = str(getattr(grid, "unit", ""))
        head_text = "zone" if isinstance(grid, Zones) else "label"
        if isinstance(grid, ZonePairs):
            head_text = "from and to"
        return [named], (unit or "value" if is_on_a_line(release.query) else head_text,)
    if grid.box is None:
        head = tuple(f"{name} ({grid.unit})" if grid.unit else name for name in ("x", "y"))
        return [[format_number(value) for value in columns[name]] for name in ("x", "y")], head
    return [[f"{value:.5f}" for value in columns[name]] for name in ("latitude", "longitude")], (
        "latitude",
        "longitude",
    )

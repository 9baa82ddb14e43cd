"""The page of `metricshuffle map`: the picture of one release, what it promises, and its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from metricshuffle.numerics.rounding import plain
from metricshuffle.pages.answer_table import answer_columns
from metricshuffle.pages.charts.answers import answer_chart, largest_error, on_a_line, shared_of
from metricshuffle.pages.charts.intervals import percent
from metricshuffle.pages.charts.place_maps import Background
from metricshuffle.pages.elements import Figure, Promise, Table
from metricshuffle.pages.facts import release_facts
from metricshuffle.pages.rendering import rendered
from metricshuffle.planning.explain import expected_text
from metricshuffle.queries.cells import label_of
from metricshuffle.queries.table import Table as Rows
from metricshuffle.spaces import Grid
from metricshuffle.wire.release import Release, measured

MOST_ROWS = 500
"""Of the table on the page; a CSV file has all."""


def page(release: Release, level: float = 0.95, background: Background | None = None) -> str:
    """One HTML document without any link."""
    chart = answer_chart(release, level, name="map", background=background)
    numbers, left_out = numbers_table(release, level)
    return rendered(
        "release_map.html.jinja",
        heading=_heading(release),
        title=release.title,
        question=release.question,
        asked=sentence(str(release.query)),
        people=_people(release),
        figure_of_answer=Figure(chart.drawing(), sentence(chart.description)),
        promises=_promises(release),
        remarks=[
            *filter(None, [" ".join(_sure(release, level))]),
            *map(sentence, release.remarks),
        ],
        spoiled=release_facts(release).spoiled,
        numbers=numbers,
        left_out=left_out,
        task=release.plan,
    )


def sentence(words: str) -> str:
    """With a large first letter and a full stop."""
    return f"{words[:1].upper()}{words[1:].removesuffix('.')}."


def _heading(release: Release) -> str:
    query = release.query
    if isinstance(query.values_in, Grid) and query.shared:
        return "Where people are" if query.items is None else "Where people spend their time"
    if isinstance(release.value, Rows) and query.shared:
        return "How many people hold what" if query.items is None else "What people hold, on average"
    return f"The {query.title} of {release.reports:,} people"


def _people(release: Release) -> str:
    counted = f"{release.reports:,} {'people' if release.query.items is not None else 'reports'}"
    rounds = "" if release.rounds == 1 else f", round {release.round} of {release.rounds}"
    return f"From {counted} ({release.protocol}){rounds}."


def _sure(release: Release, level: float) -> list[str]:
    """How sure the answer is, in sentences."""
    query = release.query
    errors = np.asarray(answer_columns(release, level).get("standard_error", []), dtype=np.float64)
    sentences = []
    if release.estimate.smoothed:
        sentences.append("These shares are smoothed and have no interval.")
    elif query.shared:
        least, most = (percent(float(part)) for part in (errors.min(), errors.max()))
        sentences.append(f"The standard error of a share is {least if least == most else f'{least} to {most}'}.")
    elif isinstance(release.value, Rows):
        sentences.append(f"The standard error of a mean is {plain(float(errors.min()))} to {plain(float(errors.max()))}.")
    if release.expected_error is not None:
        sentences.append(f"{query.measure[:1].upper()}{query.measure[1:]}: {expected_text(query, release.expected_error)}.")
    return sentences


def _promises(release: Release) -> list[Promise]:
    trusted = release.guarantee.trust.trusted
    if trusted == "nobody":
        promises = [Promise("Whoever colludes", str(release.guarantee))]
    else:
        promises = [
            Promise(f"If the {trusted} is honest", str(release.guarantee)),
            Promise("If it is not", str(release.if_shuffler_colludes), broken=True),
        ]
    if release.query.items is not None:
        promises.append(Promise("What that is not", release.task.full_replacement, broken=True))
    return promises


def numbers_table(release: Release, level: float) -> tuple[Table, str]:
    """The answer as a table for people, and what was left out of it in words (or nothing)."""
    columns, told = answer_columns(release, level), f"{100.0 * level:g}"
    if not release.query.shared:
        written = _written(release)
        named = (columns[name] for name in ("label", "value", "standard_error", f"low_{told}", f"high_{told}"))
        rows = [(str(label), *map(written, numbers)) for label, *numbers in zip(*named, strict=True)]
        return Table(("", "value", "standard error", f"{told} % from", "to"), rows[:MOST_ROWS], (1, 2, 3, 4)), _left_out(len(rows))
    shares = np.asarray(columns["share"], dtype=np.float64)
    order = np.arange(len(shares)) if on_a_line(release.query) and len(shares) <= MOST_ROWS else np.argsort(-shares, kind="stable")
    places, head = _place_names(release, columns)
    known = {
        "share": "share", "standard_error": "standard error", f"low_{told}": f"{told} % from", f"high_{told}": "to",
        "zero_inside": "holds zero",
        f"at_most_{told}": f"at most ({told} %)", "nearby": _nearby_head(release), f"nearby_low_{told}": f"{told} % from",
        f"nearby_high_{told}": "to",
    }  # fmt: skip
    shown = [name for name in known if name in columns]
    rows, error = [], largest_error(columns.get("standard_error"))

    def cell(name: str, code: int) -> str:
        if name == "zero_inside":
            return "yes" if columns[name][code] else "no"
        return percent(columns[name][code], 0.0 if name == "standard_error" else error)

    for code in order[:MOST_ROWS].tolist():
        rows.append((*(place[code] for place in places), *(cell(name, code) for name in shown)))
    heads = (*head, *(known[name] for name in shown))
    numeric = range(0 if isinstance(release.query.values_in, Grid) else 1, len(heads) - ("zero_inside" in shown))
    return Table(heads, rows, tuple(numeric), caption=sentence(shared_of(release))), _left_out(len(shares))


def _nearby_head(release: Release) -> str:
    nearby = release.estimate.nearby
    return "" if nearby is None else nearby.words


def _left_out(rows: int) -> str:
    return f"The {MOST_ROWS:,} largest of {rows:,} rows; a .csv file has all." if rows > MOST_ROWS else ""


def _written(release: Release) -> Any:
    if isinstance(release.value, Rows):
        return plain
    return lambda number: measured(number, release.decimals)


def _place_names(release: Release, columns: dict[str, list[Any]]) -> tuple[list[list[str]], tuple[str, ...]]:
    """The columns that say where, for people: the middles of cells, numbers or labels."""
    grid = release.query.values_in
    if not isinstance(grid, Grid):
        named = [label_of(columns, code) for code in range(len(columns["share"]))]
        unit = str(getattr(grid, "unit", ""))
        return [named], (unit or "value" if on_a_line(release.query) else "label",)
    if grid.box is None:
        head = tuple(f"{name} ({grid.unit})" if grid.unit else name for name in ("x", "y"))
        return [[plain(value) for value in columns[name]] for name in ("x", "y")], head
    return [[f"{value:.5f}" for value in columns[name]] for name in ("latitude", "longitude")], ("latitude", "longitude")

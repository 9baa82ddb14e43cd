"""Dry run on a file or on invented people: the private answer and the true one.

Nothing of it is stored, and no round is counted.
"""

from __future__ import annotations

import copy
import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, cast

import numpy as np

from metricshuffle.data import open_columns
from metricshuffle.data.query_values import join_parts
from metricshuffle.data.rows import Rows
from metricshuffle.data.value_reading import PerUser
from metricshuffle.errors import BatchTooSmall, InputError, MetricShuffleError, require
from metricshuffle.numerics.types import Floats
from metricshuffle.planning import Plan, simulate
from metricshuffle.planning.pairwise_distances import (
    DISTANCE_RULE,
    DistanceSummary,
    summarize_distances,
)
from metricshuffle.planning.plan_text import error_text, expected_error_text
from metricshuffle.queries.by_group import ByGroup
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.queries.query import Estimate, Query
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.queries.result_table import Table as AnswerTable
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.randomness import Randomness
from metricshuffle.report.charts.answer_charts import answer_chart
from metricshuffle.report.charts.chart import Chart
from metricshuffle.report.charts.interval_charts import distances_chart
from metricshuffle.report.components import Figure, TextTable
from metricshuffle.report.template_engine import render_template
from metricshuffle.spaces import (
    Categories,
    Grid,
    Integers,
    Interval,
    KeyedNumbers,
    LabelSets,
    NumberRows,
    Places,
    ZonePairs,
    Zones,
)
from metricshuffle.tasks.release import Release, measured
from metricshuffle.web.form_fields import label_names
from metricshuffle.web.results import PlanResult

SIMULATED_RUNS = 200
MARKS = ",;\t|"
MAX_TABLE_ROWS = 60
MAX_INVENTED_PEOPLE = 100_000
TYPICAL_ITEMS = 20  # of an invented person, where numbers of items differ
TRIAL_LABELS = {
    "user_column": "Whose row it is",
    "per_user": "Several rows of one person",
    "column": "Column",
}


def header_of(path: Path) -> list[str]:
    """Return the column names of a CSV or Parquet file."""
    with path.open("rb") as stream:
        start = stream.read(4)
    if start == b"PAR1":
        parquet = require("pyarrow.parquet", "tables")
        try:
            return [str(name) for name in parquet.ParquetFile(path).schema_arrow.names]
        except Exception as error:
            raise InputError(
                f"this file begins like Parquet but cannot be read ({type(error).__name__})."
            ) from None
    opened = cast(BinaryIO, gzip.open(path, "rb")) if start[:2] == b"\x1f\x8b" else path.open("rb")  # noqa: SIM115 - closed below
    with opened as stream:
        try:
            line = io.TextIOWrapper(stream, encoding="utf-8-sig").readline(100_000)
        except (UnicodeDecodeError, OSError, EOFError):
            raise InputError(
                "this file is not a table: give a CSV text in UTF-8 with a header line, or "
                "a Parquet file."
            ) from None
    mark = max(MARKS, key=line.count)
    names = [name.strip() for name in next(csv.reader([line], delimiter=mark), [])]
    if "\0" in line or not any(names):
        raise InputError(
            "this file is not a table: give a CSV text with a header line, or a Parquet file."
        )
    return names


@dataclass(frozen=True)
class DryRun:
    """Result of a dry run."""

    people: str
    remarks: tuple[str, ...]
    spread: tuple[str, ...]
    private: Figure
    true: Figure | None
    """Chart of the true answer, for tables only; `facts` has a single number in words."""
    facts: tuple[tuple[str, str], ...]
    numbers: TextTable
    simulated: tuple[str, ...]
    distances: Figure | None = None
    """How far apart the people of a file are."""


def trial(
    result: PlanResult, path: Path | None, columns: Sequence[str], user_column: str, per_user: str
) -> DryRun:
    """Make one release of the plan from a file or from invented people.

    The result also has the true answer of these people, and the error over many simulated releases.
    """
    plan = result.plan
    query = result.plan.query
    remarks: list[str] = []
    spread: DistanceSummary | None = None
    if path is None:
        values: Any = invent_values(query, min(plan.users, MAX_INVENTED_PEOPLE))
        people = f"{min(plan.users, MAX_INVENTED_PEOPLE):,} invented people"
    else:
        labels = _are_words(query)
        rows = Rows.of(
            partial(open_columns, path),
            query,
            column=list(columns),
            clamp=not labels,
            user_column=user_column or None,
            per_user=cast(PerUser | None, per_user or None),
            drop_missing=True,
            drop_outside=labels,
        )
        values = join_parts(rows.parts())
        remarks = list(rows.remarks)
        people = f"{len(values):,} people in your file"
        spread = _spread(plan, values)
    plan.check_batch(len(values))
    clamp = not _are_words(query)
    released = plan.release_tally(plan.task.counted([values], clamp=clamp))
    true = with_truth(released, values)
    simulation = simulate(plan, SIMULATED_RUNS, Randomness.seeded(0))
    over = (
        f"Over {SIMULATED_RUNS} simulated releases the error is "
        f"{error_text(query, simulation.mean_absolute_error)} on average; "
        f"{expected_error_text(query, simulation.expected_error)} was expected.",
        f"{simulation.covered[:1].upper()}{simulation.covered[1:]}.",
    )
    private = answer_chart(released, name="try-private")
    truth = answer_chart(true, name="try-true") if isinstance(true.value, AnswerTable) else None
    return DryRun(
        people,
        tuple(remarks),
        () if spread is None else tuple(spread.sentences(plan.target.distance)),
        Figure(private.drawing(), f"Private. {private.description}"),
        None
        if truth is None
        else Figure(truth.drawing(), "True, and NOT PRIVATE: what these people hold."),
        _facts(released, true),
        _numbers(released, true),
        over,
        None if spread is None else _distances_figure(spread, plan.target.distance),
    )


def _are_words(query: Query) -> bool:
    """Whether values are labels or ids of zones, which cannot be clamped."""
    return isinstance(query.values_in, Categories | LabelSets | Zones | ZonePairs)


def _spread(plan: Plan, values: Any) -> DistanceSummary | None:
    try:
        return summarize_distances(plan.query, values)
    except MetricShuffleError:
        return None


def _distances_figure(spread: DistanceSummary, distance: float) -> Figure:
    edges, shares = spread.histogram()
    across = f"apart ({spread.query.unit})" if spread.query.unit else "apart"
    sentences = spread.sentences(distance)
    chart = Chart(
        distances_chart(edges, shares, distance, across),
        "try-distances",
        "How far apart two people are",
        " ".join(sentences),
        distances_chart(edges, shares, distance, across, narrow=True),
    )
    return Figure(chart.drawing(), f"How far apart two people of your file are. {DISTANCE_RULE}")


def with_truth(release: Release, values: Any) -> Release:
    """Return the release as it would be without noise."""
    query = release.query
    step = release.task.protocol.step
    inputs = query.inputs(values, step, clamp=not _are_words(query))
    people = inputs.people
    if isinstance(query, SummedQuery):
        totals = inputs.numbers.sum(axis=0).astype(np.float64)
    elif isinstance(query, UserQuery):
        assert inputs.sizes is not None  # noqa: S101 - users hold several items
        weights = np.repeat(1.0 / inputs.sizes, inputs.sizes)
        totals = np.bincount(inputs.numbers[:, 0], weights=weights, minlength=query.people.size)
        totals = totals if query.shared else totals @ np.asarray(getattr(query, "table"))  # noqa: B009 - of means only
    elif isinstance(query, ByGroup):
        totals = query.true_totals(inputs.numbers[:, 0])
    elif isinstance(query, RecordQuery):
        totals = query.true_totals(inputs.numbers)
    else:
        assert isinstance(query, CellQuery)  # noqa: S101 - nothing else is left
        counts = np.bincount(inputs.numbers[:, 0], minlength=query.cells)
        totals = query.exact(counts) if isinstance(query, LineQuery) else counts.astype(np.float64)
    exact = Estimate(
        totals,
        np.zeros_like(totals),
        people,
        step,
        lambda *_: (totals, totals),
        possible=totals / people,
    )
    true = copy.copy(release)
    true.__dict__.pop("answer", None)
    true.__dict__["estimate"] = exact
    return true


def _facts(private: Release, true: Release) -> tuple[tuple[str, str], ...]:
    if isinstance(private.value, AnswerTable):
        shares = [np.asarray(release.value[_key(release)]) for release in (private, true)]
        off = float(np.abs(shares[0] - shares[1]).mean())
        return (
            (
                "off by, on average",
                f"{100 * off:.3g} %" if _key(private) == "share" else f"{off:.4g}",
            ),
        )
    unit = f" {private.query.unit}" if private.query.unit and private.plane is None else ""
    off = float(np.linalg.norm(np.atleast_1d(np.subtract(_plane(private), _plane(true)))))
    return (
        ("private answer", f"{measured(private.value, private.decimals)}{unit}"),
        ("95 % interval", f"{measured(private.answer.interval, private.decimals)}{unit}"),
        ("true answer", f"{measured(true.value, private.decimals)}{unit}"),
        ("off by", error_text(private.query, off)),
    )


def _key(release: Release) -> str:
    """Name of the column of numbers in a table."""
    return next(name for name in ("share", "value", "mean") if name in release.value.columns)


def _plane(release: Release) -> Any:
    return release.value if release.plane is None else release.plane.value


def _numbers(private: Release, true: Release) -> TextTable:
    if not isinstance(private.value, AnswerTable):
        pairs = zip(np.atleast_1d(private.value), np.atleast_1d(true.value), strict=True)
        return TextTable(
            ("private", "true"),
            [(f"{mine:.6g}", f"{theirs:.6g}") for mine, theirs in pairs],
            numeric=(0, 1),
        )
    name = _key(private)
    times, unit = (100.0, " %") if name == "share" else (1.0, "")
    from metricshuffle.queries.cell_table import label_of

    rows = []
    for code in range(min(MAX_TABLE_ROWS, len(private.value[name]))):
        mine = times * float(private.value[name][code])
        theirs = times * float(true.value[name][code])
        rows.append(
            (label_of(private.value.columns, code), f"{mine:.3f}{unit}", f"{theirs:.3f}{unit}")
        )
    return TextTable(("", "private", "true"), rows, numeric=(1, 2))


def invent_values(query: Query, people: int) -> Any:
    """Values of invented people, the same every time.

    They concentrate in the middle, or around a few places.
    """
    generator = np.random.default_rng(7)
    domain = query.values_in
    items = query.items if isinstance(query.items, int) else TYPICAL_ITEMS
    count = people if query.items is None else people * items
    if isinstance(domain, Categories | Zones):
        names = domain.labels if isinstance(domain, Categories) else domain.ids
        shares = 1.0 / np.arange(1, len(names) + 1)
        values: Any = np.array(names, dtype=object)[
            generator.choice(len(names), count, p=shares / shares.sum())
        ]
    elif isinstance(domain, ZonePairs):
        names = domain.zones.ids
        shares = 1.0 / np.arange(1, len(names) + 1)
        values = np.array(names, dtype=object)[
            generator.choice(len(names), (count, 2), p=shares / shares.sum())
        ]
    elif isinstance(domain, Grid):
        centre = generator.uniform(0.25, 0.75, (3, 2))[generator.integers(0, 3, count)]
        ends = np.array([domain.width, domain.height])
        values = np.clip(
            np.floor((centre + generator.normal(0, 0.12, (count, 2))) * ends), 0, ends - 1
        ).astype(np.int64)
    elif isinstance(domain, Places):
        centre = generator.uniform(0.25, 0.75, (3, 2))[generator.integers(0, 3, count)]
        low_high = np.array([(domain.south, domain.west), (domain.north, domain.east)])
        values = np.clip(
            low_high[0]
            + (centre + generator.normal(0, 0.12, (count, 2))) * np.diff(low_high, axis=0),
            *low_high,
        )
    elif isinstance(domain, Integers | Interval):
        low = float(domain.low)
        high = float(domain.high)
        values = np.clip(low + (high - low) * generator.beta(2.0, 4.0, count), low, high)
        values = np.rint(values).astype(np.int64) if isinstance(domain, Integers) else values
    elif isinstance(domain, NumberRows | LabelSets | KeyedNumbers):
        values = _invent_records(domain, count, generator)
    else:
        raise InputError("there are no invented people for this question; give a file.")
    if query.items is None:
        return values
    return [list(values[start : start + items]) for start in range(0, count, items)]


def _invent_records(
    domain: NumberRows | LabelSets | KeyedNumbers, count: int, generator: np.random.Generator
) -> object:
    """Rows of numbers, sets, or keys with numbers; early labels are more frequent."""

    def numbers(of: object, *shape: int) -> Floats:
        low, high = float(getattr(of, "low")), float(getattr(of, "high"))  # noqa: B009
        drawn = low + (high - low) * generator.beta(2.0, 4.0, shape)
        return np.rint(drawn) if isinstance(of, Integers) else drawn

    if isinstance(domain, NumberRows):
        return numbers(domain.numbers, count, len(domain.columns))
    names = domain.labels.labels if isinstance(domain, LabelSets) else domain.keys.labels
    shares = 1.0 / np.arange(1, len(names) + 1)
    order = generator.random((count, len(names))) ** (1.0 / shares)
    sizes = generator.integers(0, domain.most, count, endpoint=True)
    records = [
        [names[code] for code in codes[:size]]
        for codes, size in zip(np.argsort(-order, axis=1), sizes, strict=True)
    ]
    if isinstance(domain, LabelSets):
        return records
    drawn = numbers(domain.numbers, count, domain.most)
    return [
        list(zip(keys, row.tolist(), strict=False))
        for keys, row in zip(records, drawn, strict=True)
    ]


class TrialOptions(TypedDict):
    """The file of a dry run ("" for invented people) and its columns."""

    path: str
    columns: list[str]
    user_column: str
    per_user: str


def trial_html(result: PlanResult, trial_options: TrialOptions) -> tuple[str, str]:
    """Render a dry run, and return the HTML and an error about the chosen columns ("" if none).

    The HTML shows this error, and all others.
    """
    path = Path(trial_options["path"]) if trial_options["path"] else None
    try:
        dry_run = trial(
            result,
            path,
            trial_options["columns"],
            trial_options["user_column"],
            trial_options["per_user"],
        )
    except BatchTooSmall as error:
        remedy = "Set “People” or “Honest people” to what the file has, and try again."
        return render_template(
            "web/trial.html.jinja", trial=None, wrong=f"{str(error).partition(';')[0]}. {remedy}"
        ), ""
    except MetricShuffleError as error:
        sentence = with_trial_labels(error, path)
        about = sentence if path is not None and "column" in sentence.lower() else ""
        return render_template("web/trial.html.jinja", trial=None, wrong=sentence), about
    return render_template("web/trial.html.jinja", trial=dry_run, wrong=""), ""


def with_trial_labels(error: MetricShuffleError, path: Path | None) -> str:
    """Return the sentence of an error, with labels for fields and "your file" for the path."""
    text = error.text(label_names(TRIAL_LABELS))
    text = (
        text
        if path is None
        else text.replace(str(path), "your file").replace(path.name, "your file")
    )
    for name, field_label in TRIAL_LABELS.items():
        text = text.replace(f"--{name.replace('_', '-')}", f"“{field_label}”")
    return text

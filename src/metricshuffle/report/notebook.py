"""Display in notebooks: a card for every result, and its chart."""

from __future__ import annotations

import html as markup
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from importlib import import_module
from typing import Any

import numpy as np

from metricshuffle.amplification.amplify import Amplification, AmplifiedBand
from metricshuffle.amplification.groups import GroupsAmplification
from metricshuffle.auditing.audit import Audit
from metricshuffle.errors import InputError, MetricShuffleError, MissingExtra
from metricshuffle.models import content_digest
from metricshuffle.numerics.rounding import (
    format_delta,
    format_distance,
    format_epsilon,
    format_lower_bound,
    format_number,
)
from metricshuffle.planning import Candidate, Plan
from metricshuffle.planning.advice import worth_showing
from metricshuffle.planning.error_simulation import Simulation
from metricshuffle.planning.plan_text import (
    expected_error_text,
    needless_trust_sentence,
    not_offered,
    plan_heading,
    protocol_label,
    target_text,
    warnings,
    why_chosen,
)
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.profile import LowerProfile, PrivacyProfile
from metricshuffle.queries.cell_table import label_of
from metricshuffle.queries.result_table import Table as Cells
from metricshuffle.report.charts import profile_charts
from metricshuffle.report.charts.answer_charts import answer_chart
from metricshuffle.report.charts.chart import Chart
from metricshuffle.report.charts.plan_charts import candidates_chart
from metricshuffle.report.components import GuaranteeLine, TextTable
from metricshuffle.report.template_engine import EXTRA, render_template
from metricshuffle.tasks.release import MAX_ROWS_PRINTED_WHOLE, PRINTED_ROWS, Release, measured
from metricshuffle.tasks.task import Task
from metricshuffle.tasks.wording import wording_lines

DELTAS = (1e-4, 1e-6, 1e-8)
EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0)
PAPER = "#ffffff"
"""Background of Altair's charts, whose ink is dark in every theme of a notebook."""


@dataclass(frozen=True)
class Summary:
    """Content of a card, rendered by templates/notebook/card.html.jinja."""

    title: str
    words: Sequence[str] = ()
    """Title and question for participants, as the planner wrote them."""
    caption: str = ""
    numbers: Sequence[tuple[str, str]] = ()
    """The most important numbers, each with its label."""
    table: TextTable | None = None
    sentences: Sequence[str] = ()
    promises: Sequence[GuaranteeLine] = ()
    warnings: Sequence[str] = ()
    more: Sequence[str] = ()
    """Sentences that are folded away at first."""
    more_title: str = "More"


def html(thing: object) -> str:
    """Render a result as a card; an error in its computation is shown in the card.

    Without the optional dependency, the card is plain text, and has the command that installs it.
    """
    try:
        card = summary(thing)
    except MetricShuffleError as error:
        card = Summary(type(thing).__name__, sentences=[repr(thing)], warnings=[str(error)])
    try:
        return render_template("notebook/card.html.jinja", it=card)
    except MissingExtra:
        text = (
            f"{thing}\n\nShown as text; for a table in the notebook: pip install "
            f"'metricshuffle[{EXTRA}]'"
        )
        return f"<pre>{markup.escape(text)}</pre>"  # there is no template engine here


def plot(thing: object, **options: Any) -> Any:
    """Return the chart of a result; an Altair chart if altair is installed."""
    result_chart = chart(thing, **options)
    # A notebook may contain several charts of one kind.
    result_chart = replace(
        result_chart, name=f"{result_chart.name}-{content_digest(result_chart.spec)[:8]}"
    )
    try:
        altair = import_module("altair")
    except ImportError:
        return result_chart
    # Altair adds the schema of its own version.
    spec = {name: part for name, part in result_chart.to_dict().items() if name != "$schema"}
    return altair.Chart.from_dict({**spec, "config": {**spec["config"], "background": PAPER}})


@singledispatch
def chart(thing: object, **options: Any) -> Chart:
    """Return the chart of a result."""
    raise InputError(f"there is no chart of {type(thing).__name__}.")


@chart.register
def _(thing: Plan) -> Chart:
    return candidates_chart(thing)


@chart.register
def _(thing: Release, *, level: float = 0.95) -> Chart:
    return answer_chart(thing, level)


@chart.register
def _(
    thing: PrivacyProfile,
    *,
    distance: float | Sequence[float] | None = None,
    delta: float | Sequence[float] | None = None,
) -> Chart:
    return (
        profile_charts.delta_chart(thing, distance)
        if delta is None
        else profile_charts.epsilon_chart(thing, delta, distance)
    )


@chart.register
def _(thing: LowerProfile, *, distance: float | Sequence[float] | None = None) -> Chart:
    return profile_charts.lower_delta_chart(thing, distance)


@chart.register
def _(thing: Amplification, *, delta: float | None = None, distance: float | None = None) -> Chart:
    return (
        profile_charts.band_chart(thing, distance)
        if delta is None
        else profile_charts.distance_band_chart(thing, delta, distance)
    )


@chart.register
def _(thing: GroupsAmplification, *, distance: float | None = None) -> Chart:
    return profile_charts.groups_chart(thing, distance)


@singledispatch
def summary(thing: object) -> Summary:
    """Summarize a result in a few sentences and numbers."""
    return Summary(type(thing).__name__, sentences=str(thing).splitlines())


def _capital(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _promises(guarantee: Guarantee, fallback: Guarantee) -> list[GuaranteeLine]:
    """Both guarantees; the second is the fallback if the trusted party is dishonest."""
    trusted = guarantee.trust.trusted
    if trusted == "nobody":
        return [GuaranteeLine("Whoever is dishonest", str(guarantee))]
    return [
        GuaranteeLine(f"If the {trusted} is honest", str(guarantee)),
        GuaranteeLine("If it is not", str(fallback), broken=True),
    ]


def _epsilons(guarantee: Guarantee, fallback: Guarantee) -> list[tuple[str, str]]:
    """The epsilons of both guarantees, with their labels."""
    trusted = guarantee.trust.trusted
    distance_text = f"{format_distance(guarantee.distance)} {guarantee.unit}".rstrip()
    if trusted == "nobody":
        return [
            (
                f"epsilon at distance {distance_text}, whoever is dishonest",
                format_epsilon(guarantee.epsilon),
            )
        ]
    return [
        (
            f"epsilon at distance {distance_text} if the {trusted} is honest",
            format_epsilon(guarantee.epsilon),
        ),
        ("if it is not", format_epsilon(fallback.epsilon)),
    ]


@summary.register
def _(thing: Plan) -> Summary:
    choice = thing.choice
    warned = thing.protocol.warning(thing.query)
    return Summary(
        title=f"Plan: {plan_heading(thing)}",
        words=wording_lines(thing.title, thing.question),
        caption=_capital(target_text(thing)),
        numbers=[
            ("expected error", expected_error_text(thing.query, choice.expected_error)),
            *_epsilons(thing.guarantee, thing.if_shuffler_colludes),
        ],
        table=_candidates(thing),
        sentences=[why_chosen(thing), *needless_trust_sentence(thing)],
        promises=_promises(thing.guarantee, thing.if_shuffler_colludes),
        warnings=[
            *([warned] if warned and choice.trusted != "nobody" else []),
            *warnings(thing, worth_showing(thing)),
        ],
        more=not_offered(thing),
        more_title="Protocols that do not apply",
    )


def _candidates(plan: Plan) -> TextTable:
    """Table of candidates, narrower than in a terminal.

    Encodings share a column with their protocols; the chosen row is marked and tinted.
    """
    cells = []
    classes = []
    shown_indices = worth_showing(plan)
    for index in shown_indices:
        offer = plan.candidates[index]
        mark = "chosen" if index == plan.chosen else "baseline" if offer.baseline else ""
        named = ", ".join(filter(None, (protocol_label(offer), offer.encoding)))
        left = "raw values" if offer.trusted == "curator" else format_epsilon(offer.local_epsilon)
        error = expected_error_text(plan.query, offer.expected_error)
        cells.append(
            (
                f"{named} ({mark})" if mark else named,
                offer.trusted,
                error,
                left,
                f"{offer.bits_per_user:,}",
            )
        )
        classes.append(mark)
    head = ("protocol", "trusts", "expected error", "epsilon if it colludes", "bits")
    hidden = len(plan.candidates) - len(shown_indices)
    caption = (
        f"{hidden} more, each as good as one of these or worse in everything; to_frame() has all."
        if hidden
        else ""
    )
    return TextTable(head, cells, numeric=(2, 3, 4), classes=classes, caption=caption)


@summary.register
def _(thing: Candidate) -> Summary:
    details = ", ".join(
        f"{name} {format_number(value) if isinstance(value, int | float) else value}"
        for name, value in thing.details.items()
    )
    encoding = f" ({thing.encoding})" if thing.encoding else ""
    return Summary(
        title=f"Candidate: {protocol_label(thing)}{encoding}",
        caption=details,
        numbers=[
            (
                "expected error",
                format_number(thing.expected_error)
                if math.isfinite(thing.expected_error)
                else "unknown",
            ),
            *_epsilons(thing.guarantee, thing.fallback),
            ("bits per user", f"{thing.bits_per_user:,}"),
        ],
        promises=_promises(thing.guarantee, thing.fallback),
        warnings=[thing.warning] if thing.warning else [],
    )


def _in_effect(task: Task) -> list[str]:
    """Warning if in effect the fallback protects no person, whatever its epsilon; else empty."""
    warned = task.protocol.warning(task.query)
    return [warned] if warned else []


@summary.register
def _(thing: Task) -> Summary:
    minimum_text = (
        f"at least {thing.minimum:,} report{'s' * (thing.minimum != 1)} of {thing.users:,}"
    )
    rounds = "" if thing.rounds == 1 else f", {thing.rounds} rounds"
    return Summary(
        title=f"Task: {thing.query}",
        words=wording_lines(thing.title, thing.question),
        caption=f"{thing.protocol.name}, {minimum_text}{rounds}, digest {thing.digest[:12]}",
        numbers=_epsilons(thing.guarantee, thing.if_shuffler_colludes),
        promises=_promises(thing.guarantee, thing.if_shuffler_colludes),
        warnings=_in_effect(thing),
    )


@summary.register
def _(thing: Guarantee) -> Summary:
    distance_text = f"{format_distance(thing.distance)} {thing.unit}".rstrip()
    over = "" if thing.rounds == 1 else f", over all {thing.rounds} rounds"
    return Summary(
        title="Guarantee",
        numbers=[
            (f"epsilon at distance {distance_text}{over}", format_epsilon(thing.epsilon)),
            ("delta", format_delta(thing.delta)),
        ],
        promises=[
            GuaranteeLine(
                _capital(str(thing.trust)), str(thing), broken=not math.isfinite(thing.epsilon)
            )
        ],
    )


@summary.register
def _(thing: Release) -> Summary:
    promises = _promises(thing.guarantee, thing.if_shuffler_colludes)
    promise_texts = thing.sentences
    people = "users" if thing.query.items is not None else "reports"
    origin = (
        f"from {thing.reports:,} {people if thing.reports != 1 else people[:-1]} ({thing.protocol})"
    )
    return Summary(
        title=f"Release: {thing.query}",
        words=wording_lines(thing.title, thing.question),
        caption=_capital(
            origin if thing.rounds == 1 else f"{origin}, round {thing.round} of {thing.rounds}"
        ),
        numbers=[*_answer(thing), *_epsilons(thing.guarantee, thing.if_shuffler_colludes)],
        table=_cells(thing) if isinstance(thing.value, Cells) else None,
        sentences=[
            *thing.remarks,
            *([thing.task.full_replacement] if thing.query.items is not None else []),
        ],
        promises=promises,
        warnings=[
            *promise_texts[len(promises) :],
            *([f"Warning: {thing.warning}"] if thing.warning else []),
        ],
    )


def _answer(release: Release) -> list[tuple[str, str]]:
    """The number or place, with its label; empty for a table, which is shown separately."""
    if isinstance(release.value, Cells):
        return []
    unit = f" {release.query.unit}" if release.query.unit and release.plane is None else ""
    value = measured(release.value, release.decimals)
    interval = measured(release.answer.interval, release.decimals)
    return [(f"{release.query.title}, 95 % interval {interval}{unit}", f"{value}{unit}")]


def _cells(release: Release) -> TextTable:
    """The largest shares, or the means, with their intervals; smoothed shares with upper bounds."""
    table = release.value
    shares = "share" in table.columns
    key = next(name for name in ("share", "value", "mean") if name in table.columns)
    order = (
        np.argsort(-np.asarray(table[key], dtype=np.float64), kind="stable")
        if shares
        else np.arange(len(table))
    )
    shown_codes = order if len(order) <= MAX_ROWS_PRINTED_WHOLE else order[:PRINTED_ROWS]
    cells = []
    for code in shown_codes:
        row = table[int(code)]
        name = label_of(table.columns, int(code)) if shares else str(row["label"])
        numbers = [
            row[key],
            *row.get("interval_95", ()),
            *((row["at_most_95"],) if "at_most_95" in row else ()),
        ]
        cells.append(
            [
                name,
                *((f"{100 * part:.2f} %" if shares else format_number(part)) for part in numbers),
            ]
        )
    left = len(order) - len(shown_codes)
    caption = (
        f"The {len(shown_codes)} largest of {len(order):,}; to_frame() has all." if left else ""
    )
    interval_heads = (
        ("95 %: from", "to")
        if "interval_95" in table.columns
        else ("95 %: at most",)
        if "at_most_95" in table.columns
        else ()
    )
    return TextTable(
        ("", release.query.row_name, *interval_heads),
        cells,
        numeric=tuple(range(1, 2 + len(interval_heads))),
        caption=caption,
    )


@summary.register
def _(thing: PrivacyProfile) -> Summary:
    distance_text = profile_charts.known_distance(thing) or 1.0
    return Summary(
        title=f"{type(thing).__name__}: an upper bound on what is given away",
        caption=(
            f"bound: {thing.bound}; plot(distance=...): delta against epsilon; plot(delta=..., "
            "distance=...): epsilon against distance"
        ),
        table=TextTable(
            ("delta", f"epsilon at distance {format_distance(distance_text)}"),
            [
                (format_delta(delta), format_epsilon(thing.epsilon(delta, distance_text)))
                for delta in (*DELTAS, 0.0)
            ],
            numeric=(0, 1),
        ),
    )


@summary.register
def _(thing: LowerProfile) -> Summary:
    distance_text = profile_charts.known_distance(thing) or 1.0
    return Summary(
        title=f"{type(thing).__name__}: a lower bound on what is given away",
        caption=f"bound: {thing.bound}",
        table=TextTable(
            ("epsilon", f"delta at distance {format_distance(distance_text)}, at least"),
            [
                (format_number(epsilon), format_lower_bound(thing.delta(epsilon, distance_text)))
                for epsilon in EPSILONS
            ],
            numeric=(0, 1),
        ),
    )


def _band_cells(band: AmplifiedBand) -> tuple[str, str, str]:
    return format_lower_bound(band.lower), format_epsilon(band.upper), band.bound


@summary.register
def _(thing: Amplification) -> Summary:
    return Summary(
        title=f"Amplification: {thing.users:,} shuffled reports",
        caption=f"Between {thing.pairs_at()}; plot() draws the band",
        table=TextTable(
            ("delta", "epsilon at least", "at most", "bound"),
            [(format_delta(delta), *_band_cells(thing.epsilon(delta))) for delta in DELTAS],
            numeric=(0, 1, 2),
        ),
        sentences=[thing.explain(DELTAS[1])],
    )


@summary.register
def _(thing: GroupsAmplification) -> Summary:
    delta = DELTAS[1]
    return Summary(
        title=f"Amplification: {thing.groups.users:,} shuffled reports of {len(thing)} groups",
        caption=f"At delta {format_delta(delta)}",
        table=TextTable(
            ("", "epsilon at least", "at most", "bound"),
            [(_capital(answer.member), *_band_cells(answer.epsilon(delta))) for answer in thing],
            numeric=(1, 2),
        ),
        sentences=[thing.remark] if thing.remark else [],
    )


def _covered(thing: Simulation) -> str:
    return (
        "of what is said of smoothed shares at 95 % holds"
        if thing.smoothed
        else "inside their 95 % interval"
    )


@summary.register
def _(thing: Simulation) -> Summary:
    known = math.isfinite(thing.standard_error)
    deviation = format_number(thing.standard_error) if known else "unknown"
    error = f"{format_number(thing.mean_absolute_error)} ± {deviation}"
    return Summary(
        title=f"Simulation of {thing.runs:,} releases of {thing.users:,} users",
        numbers=[
            ("mean absolute error", error),
            ("expected", format_number(thing.expected_error)),
            ("root mean square error", format_number(thing.root_mean_square_error)),
            *(
                [(_covered(thing), f"{format_number(100 * thing.coverage_95)} %")]
                if thing.coverage_95 is not None
                else []
            ),
        ],
    )


@summary.register
def _(thing: Audit) -> Summary:
    verdict, *evidence = str(thing).splitlines()
    return Summary(
        title="Audit",
        numbers=[
            ("epsilon shown, at least", format_lower_bound(thing.epsilon)),
            *([("promised", format_epsilon(thing.promised))] if thing.promised is not None else []),
        ],
        sentences=evidence,
        promises=[GuaranteeLine("", verdict, broken=thing.refuted)],
    )

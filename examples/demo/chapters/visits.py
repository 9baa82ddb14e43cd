"""A month of visits each: two releases, what they promise, and what it was worth."""

from __future__ import annotations

from dataclasses import dataclass

from examples.demo.share_panels import maps_side_by_side
from examples.demo.user_study import PlannedRelease, UserStudy, merged

from metricshuffle.numerics.rounding import format_number
from metricshuffle.report.charts.vega import drawing
from metricshuffle.report.components import Card, Figure, GuaranteeLine, TextTable
from metricshuffle_papers.compare.users import UserComparison
from metricshuffle_papers.pages.users_compare import errors_chart, key, sentence_case

LEGEND = (
    key("user", "hides any replacement at epsilon 1"),
    key("earth mover", "hides moves in proportion to their distance"),
)


@dataclass(frozen=True)
class Visits:
    users: int
    visits: int
    places: str
    cards: tuple[Card, ...]
    maps: Figure
    worth: tuple[str, ...]
    errors: Figure
    error_numbers: TextTable


def visits(study: UserStudy) -> Visits:
    both = merged(study)
    unit = study.unit
    return Visits(
        users=study.users,
        visits=study.visits,
        places=str(study.grid).removeprefix("the "),
        cards=tuple(_card(study, released) for released in study.releases),
        maps=_maps_figure(study),
        worth=tuple(map(sentence_case, study.comparisons[1].sentences())),
        errors=_errors_figure(both, unit),
        error_numbers=_error_table(both, unit),
    )


def _card(study: UserStudy, released: PlannedRelease) -> Card:
    unit = study.unit
    chosen = released.plan.choice
    release = released.release
    trusting = chosen.trusted != "nobody"
    promises = [
        GuaranteeLine(
            f"If the {chosen.trusted} is honest" if trusting else "Whoever colludes",
            str(release.guarantee),
        )
    ]
    if trusting:
        promises.append(
            GuaranteeLine("If it is not", str(release.if_shuffler_colludes), broken=True)
        )
    promises.append(GuaranteeLine("What that is not", released.full_replacement, broken=True))
    return Card(
        title=released.title,
        answer=format_number(round(study.error(released), 1)),
        unit=f" {unit}",
        caption="earth mover's distance to the truth",
        facts=(
            (
                "expected",
                f"{format_number(round(chosen.expected_error, 1))} {unit}, for time spent evenly",
            ),
            ("way", f"{chosen.protocol}, {chosen.bits_per_user:,} bits a person"),
        ),
        promises=promises,
    )


def _maps_figure(study: UserStudy) -> Figure:
    shown = [
        ("The truth", study.truth, ()),
        *((released.title, released.shares, ()) for released in study.releases),
    ]
    strongest = max(float(shares.max()) for _, shares, _ in shown)
    drawn = drawing(
        maps_side_by_side(shown, study.grid, strongest, "time"),
        "fig-visits",
        "Where people spend their time: the truth and two private releases",
        " ".join(
            f"{released.title}: {format_number(round(study.error(released), 1))} "
            f"{study.unit} of earth mover's distance from the truth."
            for released in study.releases
        ),
    )
    caption = (
        "The stronger the colour, the more time is spent there. Left or first: the truth, "
        "known because these people are simulated."
    )
    return Figure(drawn, caption)


def _errors_figure(comparison: UserComparison, unit: str) -> Figure:
    drawn = drawing(
        errors_chart(comparison, unit),
        "fig-worth",
        "Errors of user-level privacy and of the tree release",
        " ".join(comparison.sentences()),
        narrow=errors_chart(comparison, unit, narrow=True),
    )
    return Figure(
        drawn,
        f"Mean error over {comparison.runs} simulated releases, with two standard errors; "
        "the axis is logarithmic.",
        LEGEND,
    )


def _error_table(comparison: UserComparison, unit: str) -> TextTable:
    rows = [
        (
            method.model,
            method.name,
            f"{format_number(round(method.error, 1))} {unit}",
            format_number(float(f"{method.standard_error:.2g}")),
        )
        for method in comparison.methods
    ]
    return TextTable(("model", "way", "error", "standard error"), rows, numeric=(2, 3))

"""The city as a map: the truth, noisy vectors through the shuffler, and one randomized report per
person.
"""

from __future__ import annotations

from dataclasses import dataclass

from examples.demo.map_study import MapStudy
from examples.demo.share_panels import maps_side_by_side
from examples.demo.user_study import PlannedRelease

from metricshuffle.numerics.rounding import format_number, format_rough
from metricshuffle.report.charts.vega import Spec, drawing
from metricshuffle.report.components import Card, Figure, GuaranteeLine, TextTable


@dataclass(frozen=True)
class CityMap:
    users: int
    places: str
    target: str
    maps: Figure
    cards: tuple[Card, ...]
    warning: str
    numbers: TextTable


def city_map(study: MapStudy) -> CityMap:
    shown = study.vectors, study.single[0]
    drawn = drawing(
        three_maps(study),
        "fig-map",
        "Where people live: the truth, noisy vectors through the shuffler, and one report each",
        " ".join(f"{released.title}: {'; '.join(errors(study, released))}." for released in shown),
    )
    best, *others = study.single
    also = "".join(
        f" {other.plan.choice.protocol}: {', '.join(errors(study, other))}." for other in others
    )
    caption = (
        "The stronger the colour, the more people; one scale for all three. Left or first: "
        "the truth, known as these people are simulated. "
        "Below: by how much a share is off on average, and how far the people would have "
        "to be moved to make the map true, on average. "
        f"Right or last: {best.plan.choice.protocol}, of which the planner expects the "
        f"least error of a share among single reports.{also}"
    )
    target = study.vectors.plan.target
    unit = study.grid.unit
    return CityMap(
        users=study.users,
        places=str(study.grid).removeprefix("the "),
        target=(
            f"epsilon {format_number(target.epsilon)} for {format_number(target.distance)} "
            f"{unit}, less for less, delta "
            f"{format_number(target.delta)}"
        ),
        maps=Figure(drawn, caption),
        cards=tuple(_card(study, released) for released in shown),
        warning=study.vectors.release.warning,
        numbers=_numbers(study),
    )


def three_maps(study: MapStudy) -> Spec:
    """Full colour is the largest share of the truth and of the vectors: single cells of the other
    map may be more than that.
    """
    strongest = max(float(study.truth.max()), float(study.vectors.shares.max()))
    private = study.vectors
    alone = study.single[0]
    maps = (
        ("The truth", study.truth, [f"{study.users:,} people"]),
        (private.title, private.shares, errors(study, private)),
        (alone.title, alone.shares, errors(study, alone)),
    )
    return maps_side_by_side(maps, study.grid, strongest)


def errors(study: MapStudy, released: PlannedRelease) -> list[str]:
    """Both errors of a release in words."""
    return [
        f"a share is off by {_short(study.share_error(released))} % on average",
        f"earth mover's distance {format_number(round(study.distance(released)))} "
        f"{study.grid.unit}",
    ]


def _card(study: MapStudy, released: PlannedRelease) -> Card:
    chosen = released.plan.choice
    release = released.release
    return Card(
        title=released.title,
        answer=format_number(round(study.distance(released))),
        unit=f" {study.grid.unit}",
        caption="earth mover's distance to the truth",
        facts=(
            (
                "a share",
                f"{_short(study.share_error(released))} % off, "
                f"{format_rough(100.0 * chosen.expected_error)} % expected",
            ),
            ("way", f"{chosen.protocol}{f', {chosen.encoding}' if chosen.encoding else ''}"),
            (
                "sent",
                f"{_counted(chosen.messages_per_user, 'message')}, "
                f"{chosen.bits_per_user:,} bits a person",
            ),
        ),
        promises=[
            GuaranteeLine(
                f"If the {chosen.trusted} is honest"
                if chosen.trusted != "nobody"
                else "Whoever colludes",
                str(release.guarantee),
            ),
            GuaranteeLine("If it is not", str(release.if_shuffler_colludes), broken=True),
        ],
    )


def _numbers(study: MapStudy) -> TextTable:
    rows = [
        (
            released.plan.choice.protocol,
            _short(study.share_error(released)),
            format_number(round(study.distance(released), 1)),
            f"{released.plan.choice.messages_per_user:,}",
            f"{released.plan.choice.bits_per_user:,}",
        )
        for released in study.releases
    ]
    head = (
        "way",
        "error of a share (%)",
        f"earth mover's distance ({study.grid.unit})",
        "messages",
        "bits a person",
    )
    return TextTable(head, rows, numeric=(1, 2, 3, 4))


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _short(percent: float) -> str:
    return format_number(float(f"{percent:.2g}"))

"""The demo: plan four collections, play all roles, print what came out, and write report.html."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo.live import live_round

from metricshuffle.cli.console import console as made_console
from metricshuffle.cli.console import show_progress
from metricshuffle.cli.extras import require_extras
from metricshuffle.numerics.rounding import format_number

if TYPE_CHECKING:
    from examples.demo.map_study import MapStudy
    from examples.demo.user_study import UserStudy
    from rich.console import Console

    from metricshuffle.planning import Plan
    from metricshuffle.planning.setting import EncodingChoice
    from metricshuffle.privacy.target import Target
    from metricshuffle.queries import Query
    from metricshuffle.report.assessment_text import Study
    from metricshuffle.tasks.release import Release

REPORT = "report.html"
PEOPLE = 500
RESIDENTS = 2000
HONEST = 0.9


def demo(
    output: Path,
    *,
    people: int = PEOPLE,
    residents: int = RESIDENTS,
    encoding: EncodingChoice = "auto",
    live: bool = False,
    console: Console | None = None,
) -> Path:
    """Run all collections with real noise and write `output`/report.html; returns its path.

    Needs the extras `report` and `transport`, and `service` for a `live` round through a shuffler
    that is a process of its own.
    """
    require_extras("report", "transport", *(["service"] if live else []))
    from examples.demo.report import demo_report

    from metricshuffle.files import make_folder, write_text

    screen = made_console() if console is None else console
    make_folder(output)
    numbers = snack_study(people, encoding, screen)
    city, cells = city_study(residents, encoding, screen)
    places = map_study(residents, screen)
    visits = visits_study(residents, screen)
    played = live_round(screen) if live else None
    with show_progress("Drawing the report"):
        page = demo_report(numbers, city, cells, places, visits, played)
    write_text(output / REPORT, page)
    screen.print(
        f"\n[bold]Report:[/bold] {output / REPORT} ({len(page) // 1024} KB, opens in any "
        "browser, needs no network)",
        soft_wrap=True,
        highlight=False,
    )
    return output / REPORT


def snack_study(people: int, encoding: EncodingChoice, console: Console) -> Study:
    """The mean of a number."""
    from metricshuffle.privacy.target import Target
    from metricshuffle.queries import Mean
    from metricshuffle.report.assessment_text import Study
    from metricshuffle_papers.synthetic import SNACKS, snacks

    values = snacks(people)
    made = _planned(
        "snacks",
        Mean(domain=SNACKS),
        Target(epsilon=1.0, delta=1e-6, distance=20),
        people,
        encoding,
    )
    study = Study(
        "Snacks",
        "the energy of the snacks they ate yesterday",
        made,
        _released(made, values),
        float(values.mean()),
    )
    _print(study, console)
    return study


def city_study(residents: int, encoding: EncodingChoice, console: Console) -> tuple[Study, Any]:
    """The centroid of homes on a grid, and the cells they are in."""
    from metricshuffle.privacy.target import Target
    from metricshuffle.queries import Centroid
    from metricshuffle.report.assessment_text import Study
    from metricshuffle_papers.synthetic import CITY, homes

    cells = CITY.cells(homes(residents))
    made = _planned(
        "the city",
        Centroid(domain=CITY),
        Target(epsilon=1.0, delta=1e-6, distance=500),
        residents,
        encoding,
    )
    east, north = (float(part) for part in CITY.centres(cells).mean(axis=0))
    study = Study(
        "A city", "the grid cell they live in", made, _released(made, cells), (east, north)
    )
    _print(study, console)
    return study, cells


def map_study(residents: int, console: Console) -> MapStudy:
    """How many of them live in each part of the city, two ways."""
    from examples.demo import map_study as maps

    from metricshuffle_papers.synthetic import homes

    with show_progress("Planning and drawing the map"):
        study = maps.map_study(homes(residents), HONEST)
    target = study.vectors.plan.target
    unit = study.grid.unit
    release = study.vectors.release
    console.print(
        f"\n[bold]The city as a map[/bold]: the same {study.users:,} people in {study.grid}.\n"
        f"Target: epsilon {format_number(target.epsilon)} in proportion to the distance up "
        f"to {format_number(target.distance)} {unit}, "
        f"delta {format_number(target.delta)}.\n",
        highlight=False,
    )
    for released in study.releases:
        off = f"{study.share_error(released):.2g} %"
        moved = f"{format_number(round(study.distance(released)))} {unit}"
        name = released.plan.choice.protocol
        console.print(
            f"  {name:26} a share is off by [bold]{off}[/bold], earth mover's distance "
            f"[bold]{moved}[/bold]",
            highlight=False,
        )
    console.print(
        f"\n[green]If the {release.guarantee.trust.trusted} is honest:[/green] {release.guarantee}",
        highlight=False,
    )
    console.print(f"[yellow]If it is not:[/yellow] {release.if_shuffler_colludes}", highlight=False)
    return study


def visits_study(residents: int, console: Console) -> UserStudy:
    """How people who hold a month of visits each spread over the city."""
    from examples.demo.user_study import study_of

    from metricshuffle_papers.synthetic import visits

    with show_progress("Planning and comparing a month of visits"):
        study = study_of(visits(residents))
    target = study.local.plan.target
    console.print(
        f"\n[bold]A month of visits[/bold]: {study.users:,} people hold {study.visits:,} "
        f"visits ({study.grid}).\n"
        f"Target: epsilon {format_number(target.epsilon)} if the whole month of one person "
        f"moves by {format_number(target.distance)} "
        f"{study.unit} (earth mover's distance), less for less.\n",
        highlight=False,
    )
    for released in study.releases:
        error = format_number(round(study.error(released), 1))
        console.print(
            f"  {released.title:21} [bold]{error} {study.unit}[/bold] of earth mover's "
            "distance from the truth",
            highlight=False,
        )
    console.print(
        f"\n[green]Whoever colludes:[/green] {study.local.release.guarantee}", highlight=False
    )
    console.print(
        f"[yellow]What that is not:[/yellow] {study.local.full_replacement}", highlight=False
    )
    return study


def _planned(name: str, query: Query, target: Target, users: int, encoding: EncodingChoice) -> Plan:
    from metricshuffle.planning import plan

    with show_progress(f"Planning {name}") as tell:
        return plan(
            query,
            target,
            users,
            HONEST,
            encoding=encoding,
            progress=lambda step: tell(f"calibrating {step}"),
        )


def _released(plan: Plan, values: Any) -> Release:
    """The three roles, one after the other, with the operating system's randomness."""
    reports = plan.randomize(values)
    shuffled = plan.shuffle(reports)
    return plan.estimate(shuffled, raw_values_seen=True)


def _print(study: Study, console: Console) -> None:
    from metricshuffle.cli.candidate_table import candidate_table
    from metricshuffle.report.plan_view import plan_facts, release_facts

    plan = plan_facts(study.plan)
    release = release_facts(study.release)
    console.print(
        f"\n[bold]{study.title}[/bold]: {plan.users:,} people are asked for {study.asked} "
        f"({plan.domain}).",
        highlight=False,
    )
    console.print(
        f"Target: {plan.target}; at least {plan.honest:,} of {plan.users:,} honest.",
        highlight=False,
    )
    console.print()
    console.print(candidate_table(study.plan))
    console.print()
    baseline = (
        " (In brackets: sees the raw values; for comparison only.)"
        if any(offer.baseline for offer in plan.offers)
        else ""
    )
    console.print(f"{plan.why_chosen}{baseline}\n", highlight=False)
    for name, words in (
        ("truth", f"{release.written(study.truth)}{plan.spaced_unit}"),
        ("estimate", f"{release.value_text}{plan.spaced_unit}"),
        ("interval", f"{release.interval_text}{plan.spaced_unit} (95 %)"),
    ):
        console.print(f"  {name:9} [bold]{words}[/bold]", highlight=False)
    console.print(
        f"\n[green]If the {release.trusted} is honest:[/green] {release.guarantee}", highlight=False
    )
    console.print(f"[yellow]If it is not:[/yellow] {release.if_shuffler_colludes}", highlight=False)

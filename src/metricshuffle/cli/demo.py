"""The demo: plan three collections, play all roles, print what came out, and write report.html."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricshuffle.errors import MetricShuffleError
from metricshuffle.numerics.rounding import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from metricshuffle.pages.user_study import UserStudy
    from metricshuffle.pages.words import Study
    from metricshuffle.planning import Plan
    from metricshuffle.planning.setting import EncodingChoice
    from metricshuffle.privacy.target import Target
    from metricshuffle.queries import Query
    from metricshuffle.wire.release import Release

REPORT = "report.html"
PEOPLE, RESIDENTS = 500, 2000
HONEST = 0.9


def demo(
    output: Path, *, people: int = PEOPLE, residents: int = RESIDENTS, encoding: EncodingChoice = "auto", console: Console | None = None
) -> Path:
    """Run all collections with real noise and write `output`/report.html; returns its path. Needs the extra `report`."""
    from rich.console import Console

    from metricshuffle.pages.rendering import require_report_extra

    require_report_extra()
    from metricshuffle.files import made_folder, write_text
    from metricshuffle.pages.report import report

    screen = Console() if console is None else console
    made_folder(output)
    numbers = snack_study(people, encoding, screen)
    city, cells = city_study(residents, encoding, screen)
    visits = visits_study(residents, screen)
    with screen.status("Drawing the report"):
        page = report(numbers, city, cells, visits)
    write_text(output / REPORT, page)
    screen.print(
        f"\n[bold]Report:[/bold] {output / REPORT} ({len(page) // 1024} KB, opens in any browser, needs no network)",
        soft_wrap=True,
        highlight=False,
    )
    return output / REPORT


def snack_study(people: int, encoding: EncodingChoice, console: Console) -> Study:
    """The mean of a number."""
    from metricshuffle.pages.synthetic import SNACKS, snacks
    from metricshuffle.pages.words import Study
    from metricshuffle.privacy.target import Target
    from metricshuffle.queries import Mean

    values = snacks(people)
    made = _planned("snacks", Mean(domain=SNACKS), Target(epsilon=1.0, delta=1e-6, distance=20), people, encoding, console)
    study = Study("Snacks", "the energy of the snacks they ate yesterday", made, _released(made, values), float(values.mean()))
    _print(study, console)
    return study


def city_study(residents: int, encoding: EncodingChoice, console: Console) -> tuple[Study, Any]:
    """The centroid of homes on a grid, and the cells they are in."""
    from metricshuffle.pages.synthetic import CITY, homes
    from metricshuffle.pages.words import Study
    from metricshuffle.privacy.target import Target
    from metricshuffle.queries import Centroid

    cells = CITY.cells(homes(residents))
    made = _planned("the city", Centroid(domain=CITY), Target(epsilon=1.0, delta=1e-6, distance=500), residents, encoding, console)
    east, north = (float(part) for part in CITY.centres(cells).mean(axis=0))
    study = Study("A city", "the grid cell they live in", made, _released(made, cells), (east, north))
    _print(study, console)
    return study, cells


def visits_study(residents: int, console: Console) -> UserStudy:
    """How people who hold a month of visits each spread over the city."""
    from metricshuffle.pages.synthetic import visits
    from metricshuffle.pages.user_study import study_of

    with console.status("Planning and comparing a month of visits"):
        study = study_of(visits(residents))
    target = study.local.plan.target
    console.print(
        f"\n[bold]A month of visits[/bold]: {study.users:,} people hold {study.visits:,} visits ({study.grid}).\n"
        f"Target: epsilon {plain(target.epsilon)} if the whole month of one person moves by {plain(target.distance)} "
        f"{study.unit} (earth mover's distance), less for less.\n",
        highlight=False,
    )
    for released in study.releases:
        error = plain(round(study.error(released), 1))
        console.print(f"  {released.title:21} [bold]{error} {study.unit}[/bold] of earth mover's distance from the truth", highlight=False)
    console.print(f"\n[green]Whoever colludes:[/green] {study.local.release.guarantee}", highlight=False)
    console.print(f"[yellow]What that is not:[/yellow] {study.local.full_replacement}", highlight=False)
    return study


def _planned(name: str, query: Query, target: Target, users: int, encoding: EncodingChoice, console: Console) -> Plan:
    from metricshuffle.planning import plan

    with console.status(f"Planning {name}") as status:
        return plan(
            query, target, users, HONEST, encoding=encoding, progress=lambda step: status.update(f"Planning {name}: calibrating {step}")
        )


def _released(plan: Plan, values: Any) -> Release:
    """The three roles, one after the other, with the operating system's randomness."""
    reports = plan.randomize(values)
    shuffled = plan.shuffle(reports)
    return plan.estimate(shuffled, raw_values_seen=True)


def protocol_table(plan: Plan) -> Table:
    """The candidates in 80 columns: "->" is the chosen one, "*" a baseline that needs more trust than allowed."""
    from rich.table import Table

    from metricshuffle.numerics.rounding import promised
    from metricshuffle.planning.explain import rows

    unit = f"\n({plan.query.unit})" if plan.query.unit else ""
    drawn = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("", "protocol", "encoding", "trusts", f"error{unit}", "epsilon if\nit colludes", "bits per\nuser"):
        drawn.add_column(name, justify="right" if "\n" in name or name == "error" else "left", no_wrap=True)
    for offer, row in zip(plan.candidates, rows(plan), strict=True):
        mark, error = "*" if offer.baseline else row[0], plain(offer.expected_error)
        alone = promised(offer.local_epsilon) if math.isfinite(offer.local_epsilon) else row[5]
        drawn.add_row(mark, *row[1:4], error, alone, row[6], style="bold" if row[0] == "->" else ("dim" if offer.baseline else None))
    return drawn


def _print(study: Study, console: Console) -> None:
    from metricshuffle.pages.facts import plan_facts, release_facts

    plan, release = plan_facts(study.plan), release_facts(study.release)
    console.print(f"\n[bold]{study.title}[/bold]: {plan.users:,} people are asked for {study.asked} ({plan.domain}).", highlight=False)
    console.print(f"Target: {plan.target}; at least {plan.honest:,} of {plan.users:,} honest.", highlight=False)
    console.print()
    console.print(protocol_table(study.plan))
    console.print()
    baseline = " (* sees the raw values: for comparison only.)" if any(offer.baseline for offer in plan.offers) else ""
    console.print(f"{plan.why_chosen}{baseline}\n", highlight=False)
    for name, words in (
        ("truth", f"{release.written(study.truth)}{plan.spaced_unit}"),
        ("estimate", f"{release.value_text}{plan.spaced_unit}"),
        ("interval", f"{release.interval_text}{plan.spaced_unit} (95 %)"),
    ):
        console.print(f"  {name:9} [bold]{words}[/bold]", highlight=False)
    console.print(f"\n[green]If the {release.trusted} is honest:[/green] {release.guarantee}", highlight=False)
    console.print(f"[yellow]If it is not:[/yellow] {release.if_shuffler_colludes}", highlight=False)


def main(arguments: list[str] | None = None) -> int:
    """`python -m metricshuffle.cli.demo --output DIR`."""
    parser = argparse.ArgumentParser(prog="python -m metricshuffle.cli.demo", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for report.html (default: demo-output)")
    chosen = parser.parse_args(arguments)
    try:
        demo(chosen.output)
    except MetricShuffleError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

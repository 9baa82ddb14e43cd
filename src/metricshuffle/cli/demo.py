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

    from metricshuffle.pages.users_chapter import UserStudy
    from metricshuffle.pages.words import Study
    from metricshuffle.planning import Plan
    from metricshuffle.planning.setting import EncodingChoice

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
    from metricshuffle.pages.report import report
    from metricshuffle.files import made_folder, write_text

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
    from metricshuffle.planning import Target
    from metricshuffle.protocols import Mean

    values = snacks(people)
    made = _planned("snacks", Mean(domain=SNACKS), Target(epsilon=1.0, delta=1e-6, distance=20), people, encoding, console)
    study = Study("Snacks", "the energy of the snacks they ate yesterday", made, _released(made, values), float(values.mean()))
    _print(study, console)
    return study


def city_study(residents: int, encoding: EncodingChoice, console: Console) -> tuple[Study, Any]:
    """The centroid of homes on a grid, and the cells they are in."""
    from metricshuffle.pages.synthetic import CITY, homes
    from metricshuffle.pages.words import Study
    from metricshuffle.planning import Target
    from metricshuffle.protocols import Centroid

    cells = CITY.cells(homes(residents))
    made = _planned("the city", Centroid(domain=CITY), Target(epsilon=1.0, delta=1e-6, distance=500), residents, encoding, console)
    east, north = (float(part) for part in CITY.centres(cells).mean(axis=0))
    study = Study("A city", "the grid cell they live in", made, _released(made, cells), (east, north))
    _print(study, console)
    return study, cells


def visits_study(residents: int, console: Console) -> UserStudy:
    """How people who hold a month of visits each spread over the city."""
    from metricshuffle.pages.synthetic import visits
    from metricshuffle.pages.users_chapter import study_of

    with console.status("Planning and comparing a month of visits"):
        study = study_of(visits(residents))
    plan = study.local[0]
    console.print(
        f"\n[bold]A month of visits[/bold]: {plan.users:,} people hold {study.visits:,} visits ({plan.query.people.items_in.domain}).\n"
        f"Target: epsilon {plain(plan.target.epsilon)} if the whole month of one person moves by {plain(plan.target.distance)} "
        f"{plan.query.unit} (earth mover's distance), less for less.\n",
        highlight=False,
    )
    for name, _, release in study.releases:
        error = plain(round(study.error(release), 1))
        console.print(f"  {name:21} [bold]{error} {plan.query.unit}[/bold] of earth mover's distance from the truth", highlight=False)
    console.print(f"\n[green]Whoever colludes:[/green] {study.local[1].guarantee}", highlight=False)
    console.print(f"[yellow]What that is not:[/yellow] {study.local[1].full_replacement}", highlight=False)
    return study


def _planned(name: str, query: Any, target: Any, users: int, encoding: EncodingChoice, console: Console) -> Plan:
    from metricshuffle.planning import plan

    with console.status(f"Planning {name}") as status:
        return plan(
            query, target, users, HONEST, encoding=encoding, progress=lambda step: status.update(f"Planning {name}: calibrating {step}")
        )


def _released(plan: Plan, values: Any) -> Any:
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
    for one, row in zip(plan.candidates, rows(plan), strict=True):
        mark, error = "*" if one.baseline else row[0], plain(one.expected_error)
        alone = promised(one.local_epsilon) if math.isfinite(one.local_epsilon) else row[5]
        drawn.add_row(mark, *row[1:4], error, alone, row[6], style="bold" if row[0] == "->" else ("dim" if one.baseline else None))
    return drawn


def _print(study: Study, console: Console) -> None:
    from metricshuffle.pages.words import interval_text
    from metricshuffle.planning.explain import target_text, unit_of, why_chosen
    from metricshuffle.wire.release import measured

    plan, release, unit, digits = study.plan, study.release, unit_of(study.plan), study.release.decimals
    console.print(
        f"\n[bold]{study.title}[/bold]: {plan.users:,} people are asked for {study.asked} ({plan.query.domain}).", highlight=False
    )
    console.print(f"Target: {target_text(plan)}; at least {plan.honest:,} of {plan.users:,} honest.", highlight=False)
    console.print()
    console.print(protocol_table(plan))
    console.print()
    baseline = " (* sees the raw values: for comparison only.)" if any(one.baseline for one in plan.candidates) else ""
    console.print(f"{why_chosen(plan)}{baseline}\n", highlight=False)
    for name, words in (
        ("truth", f"{measured(study.truth, digits)}{unit}"),
        ("estimate", f"{measured(release.value, digits)}{unit}"),
        ("interval", f"{interval_text(study)}{unit} (95 %)"),
    ):
        console.print(f"  {name:9} [bold]{words}[/bold]", highlight=False)
    console.print(f"\n[green]If the {release.guarantee.trust.trusted} is honest:[/green] {release.guarantee}", highlight=False)
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

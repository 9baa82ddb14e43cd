"""Every page once, made from small inputs with hostile text wherever possible."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from examples.demo import map_study, user_study
from examples.demo.report import demo_report
from tests.report.parsed_page import ParsedPage

from metricshuffle import Centroid, Grid, Histogram, Integers, Mean, Plan, Target, plan
from metricshuffle.amplification.amplify import Amplification, amplify_generic
from metricshuffle.report import amplify_page as amplify
from metricshuffle.report import map_page as release_map
from metricshuffle.report.assessment_text import Study
from metricshuffle.report.charts import vega
from metricshuffle.report.report_page import report
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle_papers.compare.users import ComparedMethod, UserComparison
from metricshuffle_papers.pages import reproduction, users_compare
from metricshuffle_papers.reproduction import Chart, Item, Reproduction, Row, Settings
from metricshuffle_papers.synthetic import CITY, homes, snacks, visits

HOSTILE = '<b>&"x'
PEOPLE = 40
PAGES = ("demo", "report", "map", "amplify", "users_compare", "reproduction")


@pytest.fixture(scope="session")
def drawn() -> list[vega.Spec]:
    """Specifications of all charts on all pages, also narrow ones; filled when `pages` are made."""
    return []


@pytest.fixture(scope="session")
def pages(drawn: list[vega.Spec]) -> dict[str, ParsedPage]:
    made = {
        "demo": demo_page,
        "report": report_page,
        "map": map_page,
        "amplify": amplify_page,
        "users_compare": users_compare_page,
        "reproduction": reproduction_page,
    }
    draw = vega._drawn

    def noted(spec: vega.Spec, *words: str) -> vega.Drawing:
        drawn.append(spec)
        return draw(spec, *words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vega, "_drawn", noted)
        return {name: ParsedPage(make()) for name, make in made.items()}


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest, pages: dict[str, ParsedPage]) -> ParsedPage:
    return pages[request.param]


def small_plan(query: Any, distance: float) -> Plan:
    target = Target(epsilon=1.0, delta=1e-6, distance=distance)
    return plan(
        query,
        target,
        PEOPLE,
        0.9,
        encoding="modular",
        protocols=("polya-shuffle", "geometric-shuffle"),
    )


def report_page() -> str:
    numbers = small_plan(Mean(domain=Integers(0, 1000, HOSTILE)), 20)
    return report(ReportSubject.of(numbers, numbers.run(snacks(PEOPLE))))


def demo_page() -> str:
    numbers = small_plan(Mean(domain=Integers(0, 1000, HOSTILE)), 20)
    grid = Grid(CITY.width, CITY.height, CITY.cell, HOSTILE)
    cells = CITY.cells(homes(PEOPLE))
    places = small_plan(Centroid(domain=grid), 500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_study, "CITY", grid)
        months = user_study.study_of(visits(PEOPLE), runs=2)
        patch.setattr(map_study, "city_blocks", lambda: Grid(12, 8, 500.0, HOSTILE))
        places_on_map = map_study.map_study(homes(PEOPLE), 0.9)
    return demo_report(
        Study(
            f"Snacks {HOSTILE}", f"snacks {HOSTILE}", numbers, numbers.run(snacks(PEOPLE)), 230.0
        ),
        Study("A city", "a cell", places, places.run(cells), (3000.0, 2000.0)),
        cells,
        places_on_map,
        months,
    )


def map_page() -> str:
    query = Histogram(Grid(6, 4, 500.0, HOSTILE))
    single = ["k-ary-randomized-response"]
    made = plan(
        query,
        Target(epsilon=2.0, delta=0.0, distance=1000),
        PEOPLE,
        trusted="nobody",
        protocols=single,
    )
    return release_map.page(made.run([(person % 3, person % 2) for person in range(PEOPLE)]))


@dataclass(frozen=True)
class HostileRandomizer:
    """Randomizer unknown to the command line, with options as a user might type them."""

    name: str = HOSTILE
    values: dict[str, Any] = field(
        default_factory=lambda: {"matrix": f"{HOSTILE}.csv", "left out": None}
    )
    distance: float | None = None
    remark: str = HOSTILE

    def amplification(
        self, users: int, honest: str | None, rounds: int, relative: float | None = None
    ) -> Amplification:
        return amplify_generic(1.0, users, honest, rounds=rounds)


def amplify_page() -> str:
    return amplify.page(
        HostileRandomizer(), 10_000, None, 1, 1e-6, None, amplify_generic(1.0, 10_000)
    )


def users_compare_page() -> str:
    methods = (
        ComparedMethod(f"central {HOSTILE}", "central", "user", 1.0, 0.1, 2.0),
        ComparedMethod("tree Laplace", "central", "earth mover", 0.5, 0.1, 2.0),
        ComparedMethod(f"local {HOSTILE}", "local", "user", 9.0, 0.1, 2.0),
        ComparedMethod("tree Laplace", "local", "earth mover", 8.0, 0.1, 2.0),
    )
    comparison = UserComparison(300, 10, 1.0, 0.5, 1e-9, 4.0, 12, methods, unit=HOSTILE)
    return users_compare.page(
        [comparison, replace(comparison, rate=0.1)], f"users {HOSTILE}", HOSTILE
    )


def reproduction_page() -> str:
    spec = {
        "data": {"values": [{"a": 1}]},
        "mark": "point",
        "encoding": {"x": {"field": "a", "type": "quantitative", "title": HOSTILE}},
    }
    judged = Row(
        f"judged {HOSTILE}",
        published=2.0,
        as_published=2.5,
        ours=3.0,
        verdict="impossible",
        standard_error=0.25,
        note=HOSTILE,
    )
    formula = Row("a formula", as_published=1.0, ours=1.0, verdict="true")
    ours = tuple(Row(f"ours {index}", ours=float(index)) for index in range(20))
    outcome = Reproduction(
        (HOSTILE,),
        (judged, formula, *ours),
        (Chart(f"Chart {HOSTILE}", spec, f"Caption {HOSTILE}"),),
    )
    items = [
        Item(
            f"item-{index}", "Athanasiou25", f"Table {index} {HOSTILE}", HOSTILE, lambda _: outcome
        )
        for index in range(3)
    ]
    return reproduction.page(
        items, {"item-0": outcome}, {"item-1": f"failed {HOSTILE}"}, Settings(quick=True, runs=1000)
    )

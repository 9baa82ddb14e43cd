"""The demo's page about four collections, from the same chapters as one's own."""

from __future__ import annotations

import numpy as np
from examples.demo.chapters.answers import answers
from examples.demo.chapters.city import city as city_chapter
from examples.demo.chapters.city_map import city_map
from examples.demo.chapters.distance import distance
from examples.demo.chapters.live import live as live_chapter
from examples.demo.chapters.protocols import protocols
from examples.demo.chapters.users import users
from examples.demo.chapters.visits import visits as visits_chapter
from examples.demo.live_round import LiveRound
from examples.demo.map_study import MapStudy
from examples.demo.user_study import UserStudy
from numpy.typing import NDArray

from metricshuffle.report.assessment_text import Study
from metricshuffle.report.plan_view import plan_facts
from metricshuffle.report.sections.assessment import assessment
from metricshuffle.report.sections.failures import failures
from metricshuffle.report.sections.frontier import frontier
from metricshuffle.report.template_engine import rendered_from


def demo_report(
    numbers: Study,
    city: Study,
    cells: NDArray[np.int64],
    places: MapStudy,
    visits: UserStudy,
    live: LiveRound | None = None,
) -> str:
    """The whole page. `cells` are the cells of the city's simulated people, `places` counts them,
    `visits` is about people with many items each, and `live` about a round through a shuffler that
    really ran, if one did.
    """
    # the template of each chapter, its heading, and what it shows
    chapters = (
        ("answers", "The answers", answers(numbers, city)),
        ("protocols", "Choosing a protocol", protocols(numbers.plan, city.plan)),
        ("distance", "Epsilon against distance", distance(numbers.plan)),
        ("users", "Error against users", users(numbers.plan)),
        ("frontier", "If the shuffler is not honest", frontier(numbers.plan)),
        ("city", "The city", city_chapter(city, cells)),
        ("map", "The city as a map", city_map(places)),
        ("visits", "A month of visits each", visits_chapter(visits)),
        *([("live", "A live round", live_chapter(live))] if live is not None else []),
        ("failures", "When an assumption fails", failures(numbers.collection, city.collection)),
        ("assessment", "For an assessment", assessment(numbers, city)),
    )
    chapter_of = {name: number for number, (name, _, _) in enumerate(chapters, start=1)}
    return rendered_from(
        "examples.demo",
        "demo.html.jinja",
        chapters=chapters,
        people=plan_facts(numbers.plan).users,
        residents=plan_facts(city.plan).users,
        visitors=visits.users,
        chapter_of=chapter_of,
        live=live is not None,
    )

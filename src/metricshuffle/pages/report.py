"""One self-contained page about three collections: no network, no library, nothing to install to read it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metricshuffle.pages.chapters.answers import answers
from metricshuffle.pages.chapters.assessment import assessment
from metricshuffle.pages.chapters.city import city as city_chapter
from metricshuffle.pages.chapters.distance import distance
from metricshuffle.pages.chapters.failures import failures
from metricshuffle.pages.chapters.frontier import frontier
from metricshuffle.pages.chapters.protocols import protocols
from metricshuffle.pages.chapters.users import users
from metricshuffle.pages.chapters.visits import visits as visits_chapter
from metricshuffle.pages.facts import plan_facts
from metricshuffle.pages.rendering import rendered
from metricshuffle.pages.user_study import UserStudy
from metricshuffle.pages.words import Study


def report(numbers: Study, city: Study, cells: NDArray[np.int64], visits: UserStudy) -> str:
    """The whole page. `cells` are the cells of the city's (invented) people, `visits` is about people with many items each."""
    # the template of each chapter, its heading, and what it shows
    chapters = (
        ("answers", "The answers", answers(numbers, city)),
        ("protocols", "Choosing a protocol", protocols(numbers.plan, city.plan)),
        ("distance", "Epsilon against distance", distance(numbers.plan)),
        ("users", "Error against users", users(numbers.plan)),
        ("frontier", "If the shuffler is not honest", frontier(numbers.plan)),
        ("city", "The city", city_chapter(city, cells)),
        ("visits", "A month of visits each", visits_chapter(visits)),
        ("failures", "When an assumption fails", failures(numbers.plan, city.plan)),
        ("assessment", "For an assessment", assessment(numbers, city)),
    )
    return rendered(
        "report.html.jinja",
        chapters=chapters,
        people=plan_facts(numbers.plan).users,
        residents=plan_facts(city.plan).users,
        visitors=visits.users,
    )

"""Extras are asked for before anything is computed: whoever lacks one learns it at once, and not after minutes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from metricshuffle.errors import require

if TYPE_CHECKING:
    from metricshuffle.queries.query import Query

MODULES = {
    "geo": "pyproj",
    "tables": "pyarrow.parquet",
    "transport": "ot",
    "client": "httpx",
    "service": "granian",
    "postgres": "psycopg",
    "web": "starlette",
    "spark": "pyspark",
}
"""extra -> what is imported of it; pages know by themselves what they need."""


def require_extras(*extras: str) -> None:
    """A sentence that names the first extra that is missing."""
    from metricshuffle.report.template_engine import EXTRA, require_report_extra

    for extra in extras:
        if extra == EXTRA:
            require_report_extra()
        else:
            require(MODULES[extra], extra)


def require_for_simulation(query: Query) -> None:
    """What simulating answers of a query, and comparing them, takes: the earth mover's distance of users' items may need a solver.

    That is only looked for: importing it takes a second, which passes while other things are computed.
    """
    from metricshuffle.queries.user_queries import UserHistogram
    from metricshuffle.simulation.fast_draws import needs_solver

    if isinstance(query, UserHistogram) and needs_solver(query.people) and find_spec(MODULES["transport"]) is None:
        require_extras("transport")


def require_for_places(query: Query) -> None:
    """What turning degrees into cells, and answers back into degrees, takes."""
    if getattr(query.values_in, "box", None) is not None:
        require_extras("geo")

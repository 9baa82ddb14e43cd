"""Checks for optional extras, made before anything is computed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from metricshuffle.errors import require

if TYPE_CHECKING:
    from metricshuffle.queries.query import Query

MODULES = {
    "geo": "pyproj",
    "h3": "h3",
    "s2": "s2sphere",
    "tables": "pyarrow.parquet",
    "transport": "ot",
    "client": "httpx",
    "service": "granian",
    "postgres": "psycopg",
    "objects": "obstore",
    "web": "starlette",
    "spark": "pyspark",
}
"""Module to import for each extra; pages check their own extra."""


def require_extras(*extras: str) -> None:
    """Raise an error that names the first missing extra."""
    from metricshuffle.report.template_engine import EXTRA, require_report_extra

    for extra in extras:
        if extra == EXTRA:
            require_report_extra()
        else:
            require(MODULES[extra], extra)


def require_for_simulation(query: Query) -> None:
    """Require the solver that simulations of users' items may need for the earth mover's distance.

    The solver is searched for, but not imported: the import takes a second, and can run later while
    other things are computed.
    """
    from metricshuffle.queries.user_queries import UserHistogram
    from metricshuffle.simulation.fast_draws import needs_solver

    if (
        isinstance(query, UserHistogram)
        and needs_solver(query.people)
        and find_spec(MODULES["transport"]) is None
    ):
        require_extras("transport")


def require_for_places(query: Query) -> None:
    """Require the extra that converts between degrees and cells, if the query needs it."""
    if getattr(query.values_in, "box", None) is not None:
        require_extras("geo")

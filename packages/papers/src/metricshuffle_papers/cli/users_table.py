"""Comparisons of methods for users' items as text, as a table and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from metricshuffle.numerics.rounding import format_number

if TYPE_CHECKING:
    from metricshuffle.cli.table_layout import TableLayout
    from metricshuffle.spaces import Users
    from metricshuffle_papers.compare.users import UserComparison

HIDES = {
    "user": "any replacement",
    "earth mover": "moves, by distance",
    "published": "published, not certified",
}


def heading(one: UserComparison, unit: str) -> str:
    """One line that says what is compared."""
    per = f" per {unit}" if unit else ""
    people = f"{one.users:,} user{'s' * (one.users != 1)}"
    return (
        f"Rate {format_number(one.rate)}{per} beside epsilon {format_number(one.epsilon)}: "
        f"{people}, delta {one.delta:g}, {one.runs} runs."
    )


def crowd(people: Users) -> str:
    """Description of the users' items."""
    from metricshuffle.spaces import Clustered

    metric = people.items_in.metric
    if isinstance(metric, Clustered):
        held = f"users with {people.items:,} item{'s' * (people.items != 1)} each"
        return (
            f"{held} in {metric.clusters:,} clusters of {metric.places:,} places, "
            f"{metric.inner:g} apart within a cluster and 1 beyond"
        )
    return f"users with many places each in {people.items_in.domain}, in nested squares"


def stored(one: UserComparison) -> dict[str, Any]:
    """Comparison for JSON; infinite values are None."""
    found = asdict(one)
    found["methods"] = [
        {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in method.items()
        }
        for method in found["methods"]
    ]
    return {
        **found,
        "gain": {model: one.gain(model) for model in ("central", "local")},
        "sentences": one.sentences(),
    }


def table(one: UserComparison, unit: str) -> TableLayout:
    """Table with one row per method, the best of each kind in bold."""
    from metricshuffle.cli.table_layout import Column, Line, TableLayout

    columns = (
        Column("model", once=True),
        Column("way", wraps=True, heads=True),
        Column("hides", wraps=True),
        Column(f"error ({unit})" if unit else "error", number=True),
        Column("+-", number=True),
    )
    best = {
        one.best(model, hides)
        for model in ("central", "local")
        for hides in ("user", "earth mover")
    }
    lines = tuple(
        Line(
            (
                method.model,
                method.name,
                HIDES[method.hides],
                format_number(method.error),
                f"{method.standard_error:.1g}",
            ),
            "bold" if method in best else "dim" if method.hides == "published" else "",
        )
        for method in one.methods
    )
    return TableLayout(columns, lines)

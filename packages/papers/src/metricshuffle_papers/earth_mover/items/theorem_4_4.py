"""Theorem 4.4 and Eqs. (6) and (7) of Imola24: their item rates and the certified ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from metricshuffle_papers.reproduction import Chart, Item, Reproduction, Row, Settings

if TYPE_CHECKING:
    from metricshuffle.accounting.user_items.item_reports import Model

SETTINGS: tuple[tuple[Model, int, int, float, float], ...] = (
    ("local", 1, 1000, 25.0, 1e-12),
    ("local", 1, 1000, 10.0, 1e-6),
    ("local", 1, 100, 25.0, 1e-6),
    ("local", 1, 10_000, 25.0, 1e-6),
    ("central", 100_000, 1000, 25.0, 1e-12),
    ("central", 10_000, 100, 25.0, 1e-6),
    ("central", 10_000, 100, 5.0, 1e-6),
    ("central", 1_000_000, 100, 1.0, 1e-9),
)
"""Settings: model, users, items, rate, delta."""
SPANS = {
    "local": (10, 30, 100, 300, 560, 600, 800, 1000, 3000, 10_000, 100_000),
    "central": (10, 100, 1000, 10_000, 100_000),
}


@cache
def _certified(model: Model, users: int, items: int, rate: float, delta: float) -> float:
    from metricshuffle.accounting.user_items.item_reports import ItemShuffle, calibrate_item_rate

    return calibrate_item_rate(ItemShuffle.of(model, users, items), rate, delta, 1e-3).item_rate


def _rows(model: Model, users: int, items: int, rate: float, delta: float) -> list[Row]:
    from metricshuffle_papers.earth_mover.privacy_bounds import (
        equation_item_rate,
        published_item_rate,
    )

    crowd = f"{users:,} users" if model == "central" else "each user"
    named = f"{model}, {crowd} of {items:,} items, rate {rate:g}, delta {delta:g}"
    ours = _certified(model, users, items, rate, delta)
    solved = published_item_rate(rate, delta, users, items, model)
    equation = equation_item_rate(rate, delta, users, items, model)
    without = f"composition alone allows {rate / items:.4g}"
    told = "does not apply: N < 16 ln(4m/delta); " if solved is None else ""
    return [
        Row(
            f"Theorem 4.4 solved: {named}",
            None,
            solved,
            ours,
            "ours" if solved is None else "loose",
            note=told + without,
        ),
        Row(
            f"{equation.statement}: {named}",
            None,
            equation.claim,
            ours,
            "false" if equation.verdict == "false" else "loose",
            note=without,
        ),
    ]


def _chart(model: Model, quick: bool) -> Chart:
    """Chart over the items of a user who shuffles alone, or over the users."""
    from metricshuffle.report.charts.axis_charts import BLUE, GREEN, MUTED, VERMILLION, Curve
    from metricshuffle.report.charts.labelled_curves import curves_chart
    from metricshuffle_papers.charts import PUBLISHED
    from metricshuffle_papers.earth_mover.privacy_bounds import (
        equation_item_rate,
        published_item_rate,
    )

    local = model == "local"
    rate = 25.0
    delta = 1e-12
    sizes = [size for size in SPANS[model] if not quick or size in (100, 1000, 100_000)]
    places = [(1, size) if local else (size, 1000) for size in sizes]
    found: dict[str, Sequence[float | None]] = {
        "certified (ours)": [_certified(model, *place, rate, delta) for place in places],
        "composition": [rate / items for _, items in places],
        "Theorem 4.4": [published_item_rate(rate, delta, *place, model) for place in places],
        "Eq. (6)" if local else "Eq. (7)": [
            equation_item_rate(rate, delta, *place, model).claim for place in places
        ],
    }
    looks = ((BLUE, None), (MUTED, None), (GREEN, PUBLISHED), (VERMILLION, PUBLISHED))
    lines = []
    for (name, values), (colour, dash) in zip(found.items(), looks, strict=True):
        points = [
            (float(size), value)
            for size, value in zip(sizes, values, strict=True)
            if value is not None
        ]
        lines.append(Curve(name, tuple(points), colour, dash))
    across = "items of a user (local)" if local else "users of 1000 items each (central)"
    return Chart(
        f"Item rate that rate 25 at delta 1e-12 allows, {model}",
        curves_chart(lines, across, "item rate alpha_0", log_x=True),
        "Larger is better: less noise on every item. Dashed: as published. "
        + (
            "Theorem 4.4 starts where it applies, below composition."
            if local
            else "Shuffling with more users allows more."
        ),
    )


def run(settings: Settings) -> Reproduction:
    rows = []
    for setting in SETTINGS:
        settings.progress(f"{setting[0]}, {setting[1]:,} users, {setting[2]:,} items")
        rows += _rows(*setting)
    ratios = [
        row.ratio for row in rows if row.ratio is not None and row.label.startswith("Theorem")
    ]
    equations = [row.ratio for row in rows if row.ratio is not None and row.label.startswith("Eq")]
    return Reproduction(
        words=(
            f"Theorem 4.4 is true and loose: the certified item rate is {min(ratios):.2g} "
            f"to {max(ratios):.2g} times what it allows, "
            f"and {min(equations):.2g} to {max(equations):.2g} times what Eqs. (6) and (7) allow.",
            "The theorem omits a condition of its proof, alpha_0 < ln(N/(16 "
            "ln(4m/delta))). Where it fails, the theorem's rate is at least "
            "m alpha_0, which composition gives without shuffling: nothing false comes of "
            "it, and nothing useful.",
            "Its sup over w is at w -> 0, in closed form. It promises delta' = delta e^h, "
            "so that its own delta must be delta' e^-h. "
            "The second case of Eq. (6) is empty, and beyond alpha_0 = 4 Eq. (7) no longer "
            "follows from the theorem.",
            "For one user alone the theorem overtakes composition at about a thousand "
            "items, Eq. (6) at about 67,000, "
            "at rate 25 and delta 1e-12.",
        ),
        rows=tuple(rows),
        charts=(_chart("local", settings.quick), _chart("central", settings.quick)),
    )


ITEMS = (
    Item(
        "earth-mover-theorem-4-4",
        "Imola24",
        "Theorem 4.4, Eqs. (6) and (7)",
        "What shuffling allows for each item",
        run,
    ),
)

"""Heat maps of a simulated city from shuffled, noisy reports of one cell each.

Each phone randomizes its cell before sending it; a shuffler forgets who sent what; the analyst
estimates a map from the counts. The picture shows the true map, which nobody has in a real
collection, and two private maps with the same guarantee: one with noise that moves people to nearby
cells, and one with the protocol of least error.
Run:  python examples/city_heat_map.py --output city.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import metricshuffle as ms
from metricshuffle.report.charts.vega import BLUE, GRID, svg
from metricshuffle_papers.synthetic import CITY, homes

TITLE = "A city under noise"


def released(plan: ms.Plan, cells: NDArray[np.int64], randomness: ms.Randomness) -> ms.Release:
    """Play the three roles; they need only the plan's public task."""
    task = plan.task
    reports = task.randomize(cells, randomness)  # on the phones
    shuffled = task.shuffle(
        reports, randomness
    )  # how often each report occurs, and not whose it is
    return task.estimate(shuffled, raw_values_seen=True)  # here one machine plays all roles


def heat_map(
    grid: ms.Grid, shares: NDArray[np.float64], darkest: float, title: str, words: str
) -> dict[str, Any]:
    """One map for Vega-Lite: darker cells have more people."""
    cells = [
        {"column": int(column), "row": int(row), "share": float(share)}
        for (column, row), share in zip(grid.all_values(), shares, strict=True)
    ]
    shades = {
        "domain": [0, darkest],
        "range": ["#ffffff", BLUE],
        "interpolate": "rgb",
        "clamp": True,
    }
    return {
        "title": {"text": title, "subtitle": words, "offset": 8},
        "width": 360,
        "height": 360 * grid.height / grid.width,
        "view": {"stroke": GRID},
        "data": {"values": cells},
        "mark": "rect",
        "encoding": {
            "x": {"field": "column", "type": "ordinal", "axis": None},
            "y": {"field": "row", "type": "ordinal", "axis": None, "sort": "descending"},
            "color": {"field": "share", "type": "quantitative", "legend": None, "scale": shades},
        },
    }


def picture(people: int, width: int) -> tuple[str, list[str]]:
    """Four maps as one SVG file, and lines of text about them."""
    cell = CITY.width * CITY.cell / width
    grid = ms.Grid(width, max(2, round(CITY.height * CITY.cell / cell)), cell, "m")
    query = ms.Histogram(grid)
    target = ms.Target(epsilon=1.4, delta=1e-6, distance=cell)
    nearby = ms.plan(query, target, people, "95%", protocols=["planar-geometric"])
    best = ms.plan(query, target, people, "95%")

    lives = grid.cells(homes(people), clamp=True)
    seeded = ms.Randomness.seeded(
        "heat map"
    )  # so that the picture is always the same; a release takes the system's randomness
    moved, replaced = (released(plan, lives, seeded) for plan in (nearby, best))

    truth = (
        np.bincount(lives[:, 1] * width + lives[:, 0], minlength=grid.width * grid.height) / people
    )
    shown = {
        "Where people live": truth,
        "What the shuffler releases": np.array(moved.shuffled.numbers) / people,
        "What the analyst estimates": moved.value["share"],
        f"The plan's choice: {best.choice.protocol}": replaced.value["share"],
    }
    wrong = [0.5 * float(np.abs(shares - truth).sum()) for shares in shown.values()]
    words = [
        "nobody sees this map",
        *(f"{share:.0%} of the people are in a wrong cell" for share in wrong[1:]),
    ]
    maps = [
        heat_map(grid, shares, 0.8 * truth.max(), title, line)
        for (title, shares), line in zip(shown.items(), words, strict=True)
    ]
    told = []
    for plan, release in ((nearby, moved), (best, replaced)):
        told.append(f"\n{plan.task}")
        told += [line for line in (plan.choice.gain, release.warning) if line]
    told.append(
        "\nThe people are simulated and the noise is seeded: this is a demonstration, not "
        "a release."
    )
    spec = {"concat": maps, "columns": 2, "background": "#ffffff", "padding": 20}
    description = "; ".join(f"{title}: {line}" for title, line in zip(shown, words, strict=True))
    return svg(spec, "city", TITLE, description, inline=False) + "\n", told


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Heat maps of a simulated city from shuffled, noisy reports."
    )
    parser.add_argument("--people", type=int, default=50_000)
    parser.add_argument(
        "--width", type=int, default=30, help="cells across; the height follows from the city"
    )
    parser.add_argument("--output", type=Path, default=Path("city_heat_map.svg"))
    options = parser.parse_args(arguments)
    drawn, told = picture(options.people, options.width)
    options.output.write_text(drawn, encoding="utf-8")
    print("\n".join([*told, f"wrote {options.output}"]))


if __name__ == "__main__":
    main()

"""Generate the figure and tables of docs/maps.md: `python -m tools.maps docs`.

It takes a quarter of an hour; the figure half a minute.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.maps import accuracy, accuracy_table, cost_table, costs, floor_table, floors
from examples.demo.chapters.city_map import errors, three_maps
from examples.demo.map_study import MapStudy, map_study

from metricshuffle.numerics.rounding import format_number
from metricshuffle.randomness import Randomness
from metricshuffle.report.charts.vega import MUTED, svg
from metricshuffle_papers.synthetic import homes

TITLE = "Where 2,000 people live, without anybody telling"
PEOPLE = 2_000
HONEST = 0.9
SEED = "the map of the README"
PAGE = "maps.md"
PICTURE = "map.svg"


def study() -> MapStudy:
    """Run a study with seeded noise, the same every time: for a picture, never a release."""
    return map_study(homes(PEOPLE), HONEST, randomness=Randomness.seeded(SEED))


def picture(shown: MapStudy) -> str:
    """Return truth, noisy vectors through a shuffler, and single reports as an SVG file."""
    target = shown.vectors.plan.target
    grid = shown.grid
    setting = (
        f"Epsilon {format_number(target.epsilon)} for a move of "
        f"{format_number(target.distance)} {grid.unit}, delta "
        f"{format_number(target.delta)}; "
        f"{grid.width} x {grid.height} cells of {format_number(grid.cell)} {grid.unit}; "
        f"{format_number(100.0 * HONEST)} % of the "
        "people are honest."
    )
    spec = {
        **three_maps(shown),
        "background": "#ffffff",
        "padding": 22,
        "title": {
            "text": TITLE,
            "subtitle": setting,
            "fontSize": 18,
            "subtitleFontSize": 13,
            "subtitleColor": MUTED,
            "subtitlePadding": 6,
            "offset": 24,
            "frame": "bounds",
        },
    }
    words = " ".join(
        f"{released.title}: {'; '.join(errors(shown, released))}."
        for released in (shown.vectors, shown.single[0])
    )
    return svg(spec, "map", TITLE, words, inline=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the figure and the tables of the page into the given folder."""
    if len(arguments) != 1:
        print("usage: python -m tools.maps docs", file=sys.stderr)
        return 2
    from metricshuffle.files import write_text
    from tools.documents import with_part

    folder = Path(arguments[0])
    write_text(folder / PICTURE, picture(study()))
    page = folder / PAGE
    text = page.read_text(encoding="utf-8")
    for name, table in (
        ("accuracy", accuracy_table(list(accuracy()))),
        ("floors", floor_table(list(floors()))),
        ("costs", cost_table(list(costs()))),
    ):
        text = with_part(text, name, f"\n{table}\n")
    write_text(page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

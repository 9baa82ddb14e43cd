"""Where do people live? A heat map of an invented city from shuffled, noisy reports of one cell each.

Everybody moves their own cell at random (geometric noise on both axes) before it leaves their phone; a shuffler drops who sent
what; the analyst turns the counts back into a map. The page shows the true map, which nobody would have in earnest, beside
what the analyst gets, and beside what the same promise allows if it may rest on the shuffler alone.
Run:  python examples/city_heat_map.py --output city.html
"""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import metricshuffle as ms
from metricshuffle.pages.charts.marks import BLUE, INK, MUTED, svg
from metricshuffle.pages.synthetic import CITY, homes

Floats = NDArray[np.float64]

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>A city under planar noise</title>
<style>
body {{ font: 16px/1.5 "Liberation Sans", Arial, Helvetica, sans-serif; color: {ink};
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
.maps {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1.5rem; }}
figure {{ margin: 0; }} figcaption {{ color: {muted}; font-size: .9rem; }} svg.chart {{ width: 100%; height: auto; }}
</style></head><body>
<h1>A city under planar noise</h1>
<div class="maps">{maps}</div>
{words}
</body></html>
"""


def heat_map(shares: Floats, grid: ms.Grid, top: float, name: str, title: str) -> str:
    """One map as SVG: darker cells hold more people."""
    cells = [
        {"x": int(code % grid.width), "y": int(code // grid.width), "share": round(100.0 * max(float(share), 0.0), 4)}
        for code, share in enumerate(shares)
    ]
    axis: dict[str, Any] = {"type": "ordinal", "axis": None}
    spec = {
        "data": {"values": cells}, "mark": "rect", "width": 12 * grid.width, "height": 12 * grid.height,
        "encoding": {
            "x": {"field": "x", **axis}, "y": {"field": "y", "sort": "descending", **axis},
            "color": {
                "field": "share", "type": "quantitative", "legend": None,
                "scale": {"domain": [0, 100.0 * top], "range": ["#f4f7fa", BLUE], "clamp": True},
            },
        },
    }  # fmt: skip
    most = int(np.argmax(shares))
    place = f"column {most % grid.width}, row {most // grid.width}"
    return svg(spec, name, title, f"{title}; the fullest cell is {place} with {100.0 * shares[most]:.2f} % of the people.")


def page(people: int, width: int, height: int) -> str:
    """Plan, randomize, shuffle, estimate, and draw."""
    cell = CITY.width * CITY.cell / width
    grid = ms.Grid(width, height, cell, "m")
    target = ms.Target(epsilon=1.4, delta=1e-6, distance=cell)
    lives = grid.cells(homes(people), clamp=True)
    truth = np.bincount(ms.Histogram(grid).codes(lives), minlength=width * height) / people
    planar = ms.plan_histogram(grid, target, people, "95%", randomizers=["planar-geometric"])
    best = ms.plan_histogram(grid, target, people, "95%")
    stream = ms.Randomness.seeded("heat map")  # so that everybody gets the same page
    moved, replaced = (plan.run(lives, stream) for plan in (planar, best))
    maps = [
        (truth, "truth", "Where people live", "Nobody sees this map."),
        (np.array(moved.counts) / people, "reported", "What they report", "Counts of the noisy cells: the noise blurs the map."),
        (np.array(moved.likeliest), "likeliest", "What is likeliest", "The map under which these reports are the most probable."),
        (np.array(replaced.projected), "chosen", "What a plan chooses", f"By {best.choice.kind}, if the shuffler is honest."),
    ]
    figures, told = [], [f"{people:,} people, {width} x {height} cells of {cell:g} m."]
    for shares, name, title, words in maps:
        drawn = heat_map(shares, grid, 0.8 * float(truth.max()), name, title)
        off = 0.5 * float(np.abs(shares - truth).sum())
        wrong = "" if shares is truth else f" {100.0 * off:.0f} % of the people are in the wrong cell."
        figures.append(f"<figure>{drawn}<figcaption><b>{title}.</b> {words}{wrong}</figcaption></figure>")
    for heading, plan, estimate in (("Planar noise", planar, moved), ("The plan's choice", best, replaced)):
        told += [f"{heading}: {line}" for line in (str(plan.choice.guarantee), str(plan.choice.fallback), plan.choice.gain) if line]
        told += [estimate.warning] if estimate.warning else []
    told.append("The people are invented and the noise is seeded: this is a demonstration and not a release.")
    words = "\n".join(f"<p>{escape(line)}</p>" for line in told)
    return PAGE.format(ink=INK, muted=MUTED, maps="\n".join(figures), words=words)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A heat map of an invented city under planar noise.")
    parser.add_argument("--people", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=30, help="cells across; the height follows from the city")
    parser.add_argument("--output", type=Path, default=Path("city_heat_map.html"))
    given = parser.parse_args(arguments)
    height = max(2, round(given.width * CITY.height / CITY.width))
    given.output.write_text(page(given.people, given.width, height), encoding="utf-8")
    print(f"wrote {given.output}")


if __name__ == "__main__":
    main()

"""Generate the figure and table of docs/beyond-the-blanket.md (some minutes).

Run `python -m tools.beyond_the_blanket docs`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.tightness import gaps, table

from metricshuffle.amplification.amplify import amplify
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.randomizers import BoundedGeometric
from metricshuffle.report.charts.vega import (
    BLUE,
    MUTED,
    VERMILLION,
    Spec,
    dots,
    line,
    log_scale,
    note,
    panel,
    powers,
    svg,
    x,
    y,
)

TITLE = "How far an epsilon is above the truth at most: the blanket, and whole laws"
SPAN = 15
EPSILON = 4.0
DELTA = 1e-6
USERS = tuple(round(10 ** (power / 4)) for power in range(9, 29))  # from 178 to ten million
PAGE = "beyond-the-blanket.md"
PICTURE = "beyond-the-blanket.svg"
MARKER = "ratios"


def curves() -> tuple[
    list[tuple[float, float]], list[tuple[float, float]], list[tuple[float, float]]
]:
    """Blanket, best of all bounds, and lower bound, each over the lower bound, by people."""
    source = BoundedGeometric(SPAN, EPSILON / SPAN)
    blanket = []
    best = []
    for users in USERS:
        band = amplify(source, users).epsilon(DELTA)
        alone = BestBoundProfile(source, users, source.diameter, "blanket").epsilon(
            DELTA, source.diameter
        )
        # Rounded, so that the picture does not depend on the machine's last digits.
        blanket.append((float(users), round(alone / band.lower, 4)))
        best.append((float(users), round(band.upper / band.lower, 4)))
    return blanket, best, [(float(users), 1.0) for users in USERS]


def picture() -> str:
    """Return the figure as a reproducible SVG file."""
    blanket, best, lower = curves()
    first = float(USERS[0])
    last = float(USERS[-1])
    top = 1.02 * max(value for _, value in blanket)
    encoding: Spec = {
        "x": x(
            title="people",
            scale=log_scale(first, last),
            axis={"values": powers(first, last), "format": "~s", "grid": False},
        ),
        "y": y(
            title="epsilon, as a multiple of what some data set gives away",
            scale={"domain": [0.96, top], "zero": False, "nice": False},
        ),
    }
    layers = [
        line(lower, MUTED, [5, 4], 1.5),
        line(blanket, VERMILLION),
        line(best, BLUE),
        dots(blanket, VERMILLION, 22),
        dots(best, BLUE, 22),
        note(
            (last, blanket[-1][1]),
            ["Blanket", f"{blanket[-1][1]:.2f}"],
            VERMILLION,
            fontWeight="bold",
            dx=10,
        ),
        note(
            (last, 1.0),
            ["Beyond the blanket", f"{best[-1][1]:.4f}"],
            BLUE,
            fontWeight="bold",
            dx=10,
            dy=-8,
        ),
        note((first, 1.0), "Lower bound: what some data set gives away", MUTED, dy=14),
    ]
    chart = panel("", layers, encoding, width=560, height=320)
    setting = (
        f"Geometric noise on a line of {SPAN + 1} values, local epsilon {EPSILON:g}, delta "
        f"{DELTA:g}; every pair of values, any data set."
    )
    spec = {
        **chart,
        "background": "#ffffff",
        "padding": 22,
        "title": {
            "text": TITLE,
            "subtitle": setting,
            "fontSize": 16,
            "subtitleFontSize": 12,
            "subtitleColor": MUTED,
            "subtitlePadding": 6,
            "offset": 18,
            "frame": "bounds",
        },
    }
    words = (
        f"With {USERS[0]} people the blanket is {blanket[0][1]:.2f} and the best bound "
        f"{best[0][1]:.2f} times the lower bound; "
        f"with {USERS[-1]:,} people {blanket[-1][1]:.2f} and {best[-1][1]:.4f}."
    )
    return svg(spec, "beyond-the-blanket", TITLE, words, inline=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the figure and the table of the page into the given folder."""
    if len(arguments) != 1:
        print("usage: python -m tools.beyond_the_blanket docs", file=sys.stderr)
        return 2
    from metricshuffle.files import write_text
    from tools.documents import with_part

    folder = Path(arguments[0])
    write_text(folder / PICTURE, picture())
    page = folder / PAGE
    write_text(
        page, with_part(page.read_text(encoding="utf-8"), MARKER, "\n" + table(list(gaps())) + "\n")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Generate the picture of the README: `python -m tools.picture docs/picture.svg`."""

from __future__ import annotations

import sys
from pathlib import Path

from examples.demo.chapters.distance import claim_chart

from metricshuffle.report.charts.vega import MUTED, svg
from metricshuffle_papers.enhancing_metric_privacy.epsilon_curves import (
    PUBLISHED_SETTING,
    epsilon_curves,
)

TITLE = "Shuffling hides small moves, and not large ones, whatever was claimed"


def picture() -> str:
    """Return exact curve, published claim and single report as a reproducible SVG file."""
    users, rate, delta, reach = PUBLISHED_SETTING
    curves = epsilon_curves(rate, users, delta, reach)
    setting = (
        f"Sum of {users} numbers from 0 to {reach:,}; everybody adds geometric noise of rate "
        f"{rate:g}; delta {delta:g}."
    )
    chart = claim_chart(curves, width=580, height=320)
    chart["encoding"]["x"]["title"] = "how far one person's number moves"
    chart["encoding"]["y"]["title"] = "epsilon (0: hidden, large: seen)"
    spec = {
        **chart,
        "background": "#ffffff",
        "padding": 22,
        "title": {
            "text": TITLE,
            "subtitle": setting,
            "fontSize": 18,
            "subtitleFontSize": 13,
            "subtitleColor": MUTED,
            "subtitlePadding": 6,
            "offset": 18,
            "frame": "bounds",
        },
    }
    words = (
        f"A move of {reach} has epsilon {curves.exact[-1]:.0f} when shuffled, "
        f"{curves.claimed(reach):.0f} was claimed, and one report "
        f"alone has "
        f"{curves.alone(reach):.0f}. The claim holds up to a move of "
        f"{(curves.false_from or reach) - 1}."
    )
    return svg(spec, "picture", TITLE, words, inline=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the picture to the given path."""
    if len(arguments) != 1:
        print("usage: python -m tools.picture docs/picture.svg", file=sys.stderr)
        return 2
    from metricshuffle.files import write_text

    write_text(Path(arguments[0]), picture())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

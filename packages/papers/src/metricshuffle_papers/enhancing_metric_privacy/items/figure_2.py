"""Figure 2 of Athanasiou25: law of the summed noise, and the masses of Appendix B."""

from __future__ import annotations

import math
from fractions import Fraction

from metricshuffle.noise.polya import Polya
from metricshuffle.noise.symmetric_pmf import SymmetricLaw
from metricshuffle.report.charts.vega import BLUE, GREEN, VERMILLION, Spec, line, note, panel, x, y
from metricshuffle_papers.reproduction import (
    Chart,
    Item,
    Reproduction,
    Row,
    Settings,
    judged,
    printed_rounding,
    published_value,
)

TABLE = "Appendix B, about Figure 2"
# (shape, p) that Appendix B names, and one narrower law.
DRAWN = ((10, 0.5, BLUE), (50, 0.8, VERMILLION), (1, 0.5, GREEN))
REACH = 60


def law(shape: int, p: float) -> SymmetricLaw:
    """Law SGDL(shape, p)."""
    return Polya(Fraction(shape), -math.log(p)).law(-40.0, REACH)


def run(settings: Settings) -> Reproduction:
    blue = law(10, 0.5)
    red = law(50, 0.8)
    found = {
        "P[SGDL(10, 0.5) = 0]": blue.probability(0),
        "P[SGDL(10, 0.5) = 10]": blue.probability(10),
        "ln of the ratio of the two": float(blue.log_mass[0] - blue.log_mass[10]),
        "P[SGDL(50, 0.8) = 0]": red.probability(0),
        "P[SGDL(50, 0.8) = 50]": red.probability(50),
    }
    rows = []
    for name, ours in found.items():
        published = published_value("enhancing_metric_privacy", TABLE, name)
        verdict = judged(
            published, ours, rounding=printed_rounding("enhancing_metric_privacy", TABLE, name)
        )
        derived = (
            "the ratio of the two rounded masses"
            if "ratio" in name
            else 'printed with "about", so read off the drawing'
        )
        rows.append(Row(name, published=published, ours=ours, verdict=verdict, note=derived))
    good = sum(row.verdict == "reproduced" for row in rows)
    return Reproduction(
        words=(
            f"{good} of the {len(rows)} numbers that the paper reads off Figure 2 are "
            "those of the law it names.",
            "SGDL(b, p) is the difference of two negative binomials of shape b: the sum of "
            "n people's geometric noise has b = n. Only the "
            "caption of the figure survives; Appendix B names two of its curves, and the "
            "third, a single person's noise, is ours.",
        ),
        rows=tuple(rows),
        charts=(
            Chart(
                "The summed noise",
                _drawn(),
                "Probability of each value of the noise of the sum, from the certified law.",
            ),
        ),
    )


def _drawn() -> Spec:
    layers: list[Spec] = []
    for shape, p, colour in DRAWN:
        mass = law(shape, p).mass
        layers.append(
            line([(float(z), float(mass[abs(z)])) for z in range(-REACH, REACH + 1)], colour)
        )
        at = {1: 1, 10: 7, 50: 24}[shape]
        layers.append(
            note((float(at), float(mass[at])), f"SGDL({shape}, {p:g})", colour, dx=10, dy=-6)
        )
    base = {
        "x": x(
            title="noise",
            scale={"domain": [-REACH, REACH], "nice": False},
            axis={"tickCount": 7, "grid": False},
        ),
        "y": y(
            title="probability",
            scale={"type": "log", "domain": [1e-5, 0.5], "nice": False},
            axis={"tickCount": 5, "format": ",~g"},
        ),
    }
    return panel("", layers, base, 640, 280)


ITEMS = (Item("shuffler-figure-2", "Athanasiou25", "Figure 2", "The law of the summed noise", run),)

"""Figures 9 to 12 of Athanasiou25: K(r, d) = ln g(r, d) / d, from which the paper concludes that distance 1 is the worst."""

from __future__ import annotations

from fractions import Fraction

from metricshuffle.accounting.sums.additive import AdditiveNoise
from metricshuffle.noise.polya import Polya
from metricshuffle.pages.charts.curves import NEEDED, Curve, curves_chart
from metricshuffle.pages.charts.marks import BLUE, GREEN, PURPLE, VERMILLION, Spec
from metricshuffle.papers import enhancing_metric_privacy as paper
from metricshuffle.papers.reproduction import Chart, Item, Reproduction, Row, Settings, Verdict
from metricshuffle.papers.shuffler_mechanisms import log_ratio

FIGURES = (("Figure 9", 100, 0.2, (-1,)), ("Figure 10", 100, 0.2, (-10, -50, -100)), ("Figure 11", 100, 0.8, (-10, -50, -100)),
           ("Figure 12", 10_000, 0.8, (-100, -500, -1000)))  # fmt: skip
LONGEST = 200
ROUNDING = 1e-12
# users, rate and delta at which the paper's own formula is larger at distance 2 than at 1.
COUNTEREXAMPLE = (50, 1.0, 1e-4)
DISTANCES = (1, 2, 10, 100)


def slopes(users: int, rate: float, r: int) -> list[float]:
    noise = Polya(Fraction(users), rate)
    return [log_ratio(noise, r, d) / d for d in range(1, LONGEST + 1)]


def falls(values: list[float]) -> bool:
    """Whether the values at odd and at even distances both fall, and the first is the largest."""
    return values[0] >= max(values) - ROUNDING and all(b <= a + ROUNDING for a, b in zip(values, values[2:], strict=False))


def run(settings: Settings) -> Reproduction:
    rows, charts = [], []
    for label, users, rate, places in FIGURES:
        found = {r: slopes(users, rate, r) for r in places}
        charts.append(Chart(label, _drawn(found), f"Relative to d = 1; {users:,} users, epsilon_geo = {rate:g}."))
        for r, values in found.items():
            verdict: Verdict = "true" if falls(values) else "false"
            rows.append(Row(f"{label}: largest K({r}, d) for d up to {LONGEST}", as_published=values[0], ours=max(values), verdict=verdict,
                            note="at d = 1, as the paper says" if verdict == "true" else "not at d = 1"))  # fmt: skip
    users, rate, delta = COUNTEREXAMPLE
    first, second = (paper.geo_shuffle_epsilon(rate, users, delta, d).claim for d in (1, 2))
    rows.append(Row(f"Theorem 4.1's maximum over d, n = {users}, epsilon_geo = {rate:g}", as_published=first, ours=max(first, second),
                    verdict="false" if second > first else "true",
                    note="at r = -alpha, where the theorem takes it, d = 2 gives more than d = 1"))  # fmt: skip
    profile = AdditiveNoise(Polya(Fraction(users), rate))
    true = [profile.epsilon(0.5 * delta, d) / d for d in DISTANCES]
    grows = ", ".join(f"{value:.4f} at {d}" for d, value in zip(DISTANCES, true, strict=True))
    rows.append(Row(f"true epsilon per unit at its worst, moves up to {DISTANCES[-1]}", as_published=true[0], ours=max(true),
                    verdict="false" if max(true) > true[0] else "true", note=f"it grows with the distance: {grows}"))  # fmt: skip
    return Reproduction(
        words=(
            "The curves do fall with the distance, as the paper saw; but its conclusion is false: noise stays within alpha of a sum "
            "and not of the midpoint of two sums, so r moves outward as they part, and the true epsilon per unit grows with the distance.",
            "K is drawn for whole r. Figure 9 gives r = -1; the other captions say only that there are several, so those are ours, as are "
            "all curves.",
        ),
        rows=tuple(rows),
        charts=tuple(charts),
    )


def _drawn(found: dict[int, list[float]]) -> Spec:
    curves = []
    for (r, values), colour in zip(found.items(), (BLUE, VERMILLION, GREEN, PURPLE), strict=False):
        for parity, word in ((0, "odd"), (1, "even")):
            points = tuple((float(d + 1), values[d] / values[0]) for d in range(parity, len(values), 2))
            curves.append(Curve(f"r = {r}, d {word}", points, colour, NEEDED if parity == 0 else (5, 3)))
    return curves_chart(curves, "d", "K(r, d) / K(r, 1)", log_y=False, from_zero=False)


ITEM = Item("shuffler-figure-9", "Athanasiou25", "Figures 9 to 12", "Which distance is the worst", run)

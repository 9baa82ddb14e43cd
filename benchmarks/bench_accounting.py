"""Benchmark of certified epsilons and verified calibrations: `python -m benchmarks accounting`.

Time of an exact epsilon grows with the width of the law, sqrt(users)/rate.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from benchmarks.measuring import measurement, seconds
from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.planar_noise import PlanarNoise
from metricshuffle.noise import polya
from metricshuffle.noise.bounded_sum import truncated_sum
from metricshuffle.noise.polya import Geometric, Polya
from metricshuffle.privacy.calibration import largest_rate
from metricshuffle.privacy.target import Target


def _cold(job: Any) -> Any:
    """Run a job without the cache of laws, as for a new query in a warm process."""

    def run() -> object:
        polya._narrow.cache_clear()
        polya._wide.cache_clear()
        truncated_sum.cache_clear()
        return job()

    return run


def measurements() -> list[dict[str, Any]]:
    rows = []
    for users, target in ((10**3, None), (10**6, 5e-3), (10**9, 0.25), (10**12, None)):
        time = seconds(
            _cold(lambda users=users: AdditiveNoise(Polya(Fraction(users), 1.0)).epsilon(1e-6, 10))
        )
        rows.append(
            measurement(
                f"epsilon(10; 1e-6), rate 1, {users:.0e} users", time, "s", target, at_most=True
            )
        )
    for users in (10**3, 10**6, 10**9):
        time = seconds(
            _cold(
                lambda users=users: AdditiveNoise(truncated_sum(Geometric(1.0), 60, users)).epsilon(
                    1e-6, 10
                )
            ),
            repeats=2,
        )
        rows.append(
            measurement(f"the same for clamped noise (FFT), {users:.0e} users", time, "s", None)
        )
    for users, target in ((10**4, 0.1), (10**6, 1.0)):

        def calibrated(users: int = users) -> float:
            return largest_rate(
                lambda rate: AdditiveNoise(Polya(Fraction(users), rate)), Target(1.0, 1e-6, 100)
            )

        name = f"calibration, every d <= 100 verified, {users:.0e} users"
        rows.append(measurement(name, seconds(_cold(calibrated)), "s", target, at_most=True))
    planar = PlanarNoise(AdditiveNoise(Polya(Fraction(1000), 0.2)))
    time = seconds(lambda: planar.covers(2.0, 1e-6, 50))
    rows.append(
        measurement(
            "centroid, every displacement <= 50 cells, 1e3 users", time, "s", 30.0, at_most=True
        )
    )
    return rows

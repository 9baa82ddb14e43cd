"""Benchmark of noise sampling on one core, with OpenDP's discrete Laplace in the same run.

Run `python -m benchmarks sampling`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measuring import draws_per_second, measurement, seconds
from metricshuffle.encodings.packed_vectors import Packed
from metricshuffle.noise.dyadic_table import DyadicTable
from metricshuffle.noise.samplers import (
    rational_rate,
    sample_discrete_laplace,
    sample_polya,
    sample_polya_rows,
)
from metricshuffle.randomizers import KaryRandomizedResponse
from metricshuffle.randomness import Randomness


def opendp_discrete_laplace(rate: float, count: int) -> Callable[[], object]:
    """OpenDP's integer Laplace mechanism of the same rate on a vector of zeros."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    mechanism = dp.m.make_laplace(*space, scale=1.0 / rate)
    zeros = [0] * count
    return lambda: mechanism(zeros)


def measurements() -> list[dict[str, Any]]:
    """All rows of the table, in order."""
    stream = Randomness.system()
    rows = []
    count = 10_000_000
    part = np.empty(500_000, dtype=np.int64)
    out = np.empty(count, dtype=np.int64)
    small = np.empty(count, dtype=np.int32)
    rows.append(
        measurement(
            "random words",
            draws_per_second(lambda: stream.fill(out.view(np.uint64)), count),
            "words/s",
            None,
        )
    )
    for rate, radius in ((1.0, 40), (0.1, 160)):
        table = DyadicTable.bounded_geometric(rate, radius)
        name = f"table, geometric rate {rate}"
        bulk = draws_per_second(lambda table=table: table.draw_into(out, stream), count)  # type: ignore[misc]
        rows.append(measurement(f"{name}, int64", bulk, "draws/s", 1e8))
        narrow = draws_per_second(lambda table=table: table.draw_into(small, stream), count)  # type: ignore[misc]
        rows.append(measurement(f"{name}, int32", narrow, "draws/s", 1e8))
        added = draws_per_second(lambda table=table: table.add_noise_to(out, stream), count)  # type: ignore[misc]
        rows.append(measurement(f"{name}, added in place", added, "draws/s", None))
        draw = partial(table.draw_into, part, stream, constant_time=True)
        constant = draws_per_second(draw, part.size)
        rows.append(measurement(f"{name}, constant time", constant, "draws/s", None))
    tenth = rational_rate(0.1)
    many = 2_000_000
    some = 100_000
    exact = draws_per_second(lambda: sample_discrete_laplace(tenth, many, stream), many)
    rows.append(measurement("exact discrete Laplace, rate 0.1", exact, "draws/s", 5e6))
    polya = draws_per_second(lambda: sample_polya(Fraction(1, 1000), tenth, some, stream), some)
    rows.append(measurement("exact Polya share 1/1000, rate 0.1", polya, "draws/s", 2e5))
    single = draws_per_second(
        lambda: [sample_polya(Fraction(1, 1000), tenth, 1, stream) for _ in range(1000)], 1000
    )
    rows.append(measurement("exact Polya share, one a call", single, "draws/s", None))
    for rate, people in ((0.1, 1), (1e-6, 1), (5e-4, 100_000), (1e-6, 100_000)):
        rates = [rational_rate(rate)] * 386
        taken = seconds(
            lambda rates=rates, people=people: sample_polya_rows(  # type: ignore[misc]
                Fraction(1, 100_000), rates, people, stream
            )
        )
        goal = 1e-3 if people == 1 else 3.0
        rows.append(
            measurement(
                f"386 shares 1/100000, rate {rate:g}, {people:,} rows",
                taken,
                "s",
                goal,
                at_most=True,
            )
        )
    packed = Packed(386, 21, 8, 16, "shuffler")
    vectors = np.zeros((1000, 386), dtype=np.int64)
    made = 100 * seconds(lambda: packed.residues(vectors, stream))
    reports = packed.residues(vectors, stream)
    rows.append(
        measurement(
            "386 coordinates in 16 shares, 100,000 reports made", made, "s", 6.0, at_most=True
        )
    )
    rows.append(
        measurement(
            "the same added up",
            100 * seconds(lambda: packed.total(reports)),
            "s",
            2.0,
            at_most=True,
        )
    )
    response = KaryRandomizedResponse(64, 1.0)
    held = (np.arange(count) % 64).astype(np.uint8)
    kary = draws_per_second(lambda: response.reports(held, stream), count)
    rows.append(measurement("64-ary randomized response", kary, "reports/s", 1e8))
    sent = response.reports(held, stream)
    rows.append(
        measurement(
            "counting 1e7 reports", seconds(lambda: response.counts(sent)), "s", 0.06, at_most=True
        )
    )
    theirs = draws_per_second(opendp_discrete_laplace(0.1, some), some)
    rows.append(measurement("OpenDP make_laplace on integers, rate 0.1", theirs, "draws/s", None))
    rows.append(measurement("exact discrete Laplace / OpenDP", exact / theirs, "times", None))
    fastest = next(
        row["value"] for row in rows if row["name"] == "table, geometric rate 0.1, int64"
    )
    # Not the same task: the table is cut off at +-160 and drawn in bulk, OpenDP's law is not cut
    # off.
    rows.append(
        measurement("table (bounded law), rate 0.1 / OpenDP", fastest / theirs, "times", None)
    )
    return rows

"""Accuracy of quantiles, zones and flows on invented people: `python -m benchmarks questions`.

Each row is the mean over simulated releases. The noise on a sum is that of a curator, or of people
who are all honest. Half the sum of the errors of all shares is their total variation.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import metricshuffle as ms
from benchmarks.measuring import measurement
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features import (
    Features,
    FlowCells,
    FlowHats,
    ZoneCells,
    ZoneHats,
    space_of,
)
from metricshuffle.protocols.features.line_answers import QuantileWindows

SEED = 26
LAST = 1000
QUANTILE_RATE = 0.01
QUANTILES = (0.1, 0.5, 0.9)
QUANTILE_RUNS = 300
ZONE_COUNT = 1000
CITY_KM = 30.0
BLOCK_KM = 4.0
ZONE_RUNS = 5
FLOW_SIDE = 16
FLOW_RUNS = 3


def _noisy_means(
    features: Features, query: ms.Query, counts: Integers64, rate: float, seed: int, shape: int = 1
) -> tuple[Floats, Floats]:
    """Means of the features of these people with calibrated noise, and their standard errors.

    The noise has shape 2 if the guarantee counts on half of the people only.
    """
    space = space_of(query)
    weights = features.weights(space)
    rates = weights * (rate / features.slope(space, weights))
    people = int(counts.sum())
    noise = np.random.default_rng(seed).laplace(size=(shape, len(rates))).sum(axis=0) / rates
    errors = np.sqrt(2.0 * shape) / rates / people
    return (counts @ features.table(space) + noise) / people, errors


# Quantiles


def _numbers(kind: str, people: int, generator: np.random.Generator) -> Integers64:
    """How many people have each number from 0 to LAST."""
    drawn = {
        "lognormal": generator.lognormal(5.0, 0.6, people),
        "uniform": generator.uniform(0, LAST, people),
        "60 % at 250": np.where(
            generator.random(people) < 0.6, 250.0, generator.uniform(0, LAST, people)
        ),
    }[kind]
    return np.bincount(np.clip(np.rint(drawn), 0, LAST).astype(np.int64), minlength=LAST + 1)


def _quantile_rows() -> Iterator[dict[str, Any]]:
    query = ms.Quantiles(ms.Integers(0, LAST), QUANTILES)
    for people, width in ((1_000, 17), (10_000, 5)):
        features = QuantileWindows.of_width(width, LAST)
        space = space_of(query)
        weights = features.weights(space)
        rates = weights * (QUANTILE_RATE / features.slope(space, weights))
        noise = SumNoise(Fraction(1), rates, people)
        for kind in ("lognormal", "uniform", "60 % at 250"):
            generator = np.random.default_rng(SEED)
            counts = _numbers(kind, people, generator)
            sums = counts @ features.table(space)
            true = query.exact(counts)
            lengths, misses, errors = [], 0, []
            for _ in range(QUANTILE_RUNS):
                keep = -np.expm1(-rates)
                drawn = generator.geometric(keep) - generator.geometric(keep)
                estimate = features.estimate(query, (sums + drawn) / people, noise, people)
                low, high = estimate.interval(0.95)
                lengths.append(high - low)
                misses += int(np.count_nonzero((true < low) | (true > high)))
                errors.append(np.abs(estimate.totals - true))
            name = f"quantiles, {people:,}, {kind}"
            for place, share in enumerate(QUANTILES):
                length = float(np.mean(lengths, axis=0)[place])
                error = float(np.mean(errors, axis=0)[place])
                yield measurement(f"{name}: length at {share}", length, "", None)
                yield measurement(f"{name}: error at {share}", error, "", None)
            covered = 1.0 - misses / (QUANTILE_RUNS * len(QUANTILES))
            yield measurement(f"{name}: intervals that cover", covered, "", 0.93)


# Zones


def _city() -> tuple[Floats, Floats, Floats]:
    """Places of zones in km, public numbers of residents, and shares of the people."""
    generator = np.random.default_rng(SEED)
    places = generator.uniform(0.0, CITY_KM, (ZONE_COUNT, 2))
    middle = ((places - 0.45 * CITY_KM) ** 2).sum(axis=1)
    residents = generator.lognormal(0.0, 0.8, ZONE_COUNT) * (0.1 + np.exp(-middle / 85.0))
    waves = np.sin(places[:, 0] / 3.0) + np.cos(places[:, 1] / 3.75)
    people = residents * np.exp(0.55 * waves + 0.45 * generator.normal(size=ZONE_COUNT))
    return places, residents / residents.sum(), people / people.sum()


def _city_zones(places: Floats, residents: Floats | None) -> ms.Zones:
    """Zones of these places; latitudes are sorted like their ids."""
    latitude = 30.0 + places[:, 0] / 110.85
    longitude = -97.9 + places[:, 1] / 96.3
    ids = [f"z{code:04d}" for code in range(len(places))]
    return ms.Zones.of_points(ids, latitude, longitude, residents, unit="km")


def _variation(shares: Floats, true: Floats, blocks: Integers64) -> tuple[float, float]:
    """Half the sum of errors, of all shares and of the shares of blocks."""
    off = shares - true
    return 0.5 * float(np.abs(off).sum()), 0.5 * float(np.abs(np.bincount(blocks, off)).sum())


def _zone_rows() -> Iterator[dict[str, Any]]:
    places, residents, shares = _city()
    squares = np.floor(places / BLOCK_KM).astype(np.int64)
    blocks = squares[:, 0] * int(CITY_KM / BLOCK_KM + 1) + squares[:, 1]
    plain, weighted = _city_zones(places, None), _city_zones(places, residents)
    for people in (10_000, 100_000):
        counts = np.random.default_rng(SEED).multinomial(people, shares)
        known = _variation(residents, counts / people, blocks)
        yield measurement(f"zones, {people:,}: residents alone", known[0], "", None)
        for name, zones, features in (
            ("single zones", plain, ZoneCells()),
            ("hats of 2 km", plain, ZoneHats(2.0)),
            ("hats of 2 km, residents", weighted, ZoneHats(2.0)),
        ):
            query = ms.Histogram(zones)
            off = []
            for run in range(ZONE_RUNS):
                means, errors = _noisy_means(features, query, counts, 0.5, SEED + run)
                fitted = features.shares(space_of(query), means, errors)
                off.append(_variation(fitted, counts / people, blocks))
            row = f"zones, {people:,}: {name}"
            yield measurement(row, float(np.mean(off, axis=0)[0]), "", None)
            yield measurement(f"{row}, blocks", float(np.mean(off, axis=0)[1]), "", None)


# Flows


def gravity(side: int) -> Floats:
    """Shares of trips from homes to jobs, falling with their distance."""
    cells = np.indices((side, side)).reshape(2, -1).T / side
    homes = np.zeros(len(cells))
    jobs = np.zeros(len(cells))
    for size, place, wide in ((1.0, 0.3, 0.12), (0.7, 0.65, 0.15), (0.2, 0.5, 0.4)):
        homes += size * np.exp(-((cells - place) ** 2).sum(axis=1) / (2.0 * wide**2))
    for size, place, wide in ((1.0, 0.48, 0.06), (0.4, 0.72, 0.1), (0.1, 0.5, 0.4)):
        jobs += size * np.exp(-((cells - place) ** 2).sum(axis=1) / (2.0 * wide**2))
    apart = np.abs(cells[:, None] - cells[None]).sum(axis=-1)
    table = homes[:, None] * jobs * np.exp(-4.0 * apart)
    return np.asarray(table.ravel() / table.sum())


def _flow_zones(blocks: bool) -> ms.Zones:
    """Cells of a kilometre, with the names of 4 x 4 blocks if wanted."""
    up, right = np.indices((FLOW_SIDE, FLOW_SIDE)).reshape(2, -1)
    names = [f"{a // 4}{b // 4}" for a, b in zip(up, right, strict=True)] if blocks else None
    ids = [f"z{a:02d}{b:02d}" for a, b in zip(up, right, strict=True)]
    degrees = 30.0 + up / 110.85, -97.0 + right / 96.4
    return ms.Zones.of_points(ids, *degrees, unit="km", blocks=names)


def _flow_rows() -> Iterator[dict[str, Any]]:
    named = _flow_zones(True)
    pairs = ms.Flows(named).pairs
    shares = gravity(FLOW_SIDE)
    generator = np.random.default_rng(SEED)
    for people, length in ((10_000, 4.0), (100_000, 3.0)):
        counts = generator.multinomial(people, shares)
        true = counts / people
        other = generator.multinomial(people, shares) / people
        row = f"flows, {people:,}"
        off = _variation(other, true, pairs.block_codes)
        yield measurement(f"{row}: another sample", off[0], "", None)
        yield measurement(f"{row}: another sample, blocks", off[1], "", None)
        for name, zones, features, shape in (
            ("hats", _flow_zones(False), FlowHats(length), 1),
            ("hats, half are honest", _flow_zones(False), FlowHats(length), 2),
            ("measured blocks", named, FlowCells(), 1),
            ("measured blocks, half are honest", named, FlowCells(), 2),
        ):
            query = ms.Flows(zones)
            offs = []
            for run in range(FLOW_RUNS):
                means, errors = _noisy_means(features, query, counts, 0.25, SEED + run, shape)
                fitted = features.shares(space_of(query), means, errors)
                offs.append(_variation(fitted, true, pairs.block_codes))
            yield measurement(f"{row}: {name}", float(np.mean(offs, axis=0)[0]), "", None)
            yield measurement(f"{row}: {name}, blocks", float(np.mean(offs, axis=0)[1]), "", None)


def measurements() -> Iterator[dict[str, Any]]:
    yield from _quantile_rows()
    yield from _zone_rows()
    yield from _flow_rows()

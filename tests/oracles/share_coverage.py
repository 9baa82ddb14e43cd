"""Coverage of intervals for shares of noisy vectors, over releases by another sampler.

`python -m tests.oracles.share_coverage 200` prints a line for every setting and kind of people.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import metricshuffle as ms
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.features import Cells, Features, Ramps, ShiftedBoxes, space_of
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.queries.query import Query
from metricshuffle.randomizers import BoundedGeometric, KaryRandomizedResponse, PlanarGeometric
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.spaces import Space, Users

LEVEL = 0.95
KINDS = ("even", "clustered", "spiky")


@dataclass(frozen=True, eq=False)
class Setting:
    """Query, features, and the loss per unit of distance; nine of ten people are honest."""

    name: str
    query: Query
    features: Features
    rate: float
    people: int = 2000
    floor: Randomizer | None = None
    units: int = 1
    most_items: int | None = None

    @cached_property
    def space(self) -> Space:
        return space_of(self.query)

    @cached_property
    def table(self) -> Any:
        return self.features.table(self.space)

    @cached_property
    def protocol(self) -> NoisyVectors:
        space = self.space
        features = self.features
        slope = features.slope(space, features.weights(space)) * self.units
        return NoisyVectors(
            name="noisy-vectors",
            trusted="aggregator",
            modulus=2**60,
            features=features,
            coordinates=len(features.weights(space)),
            factor=self.rate / slope,
            sharers=max(1, 9 * self.people // 10),
            units=self.units,
            most_items=self.most_items,
            floor=self.floor,
        )

    @cached_property
    def rates(self) -> Floats:
        return self.protocol.rates(self.space)

    def held(self, kind: str, generator: np.random.Generator) -> tuple[Integers64, Integers64]:
        """Return everyone's items, and the number of items of each person."""
        size = self.space.domain.size or 0
        domain = self.space.domain
        items = self.query.items if isinstance(self.query.items, int) else 1
        sizes = (
            np.full(self.people, items)
            if self.most_items is None
            else generator.integers(1, self.most_items + 1, self.people)
        )
        count = int(sizes.sum())
        if kind == "even":
            return generator.integers(size, size=count), sizes
        if kind == "spiky":  # more than half of them at one point, and the rest at a few
            others = generator.choice(size, min(size, 20), replace=False)
            rest = others[np.minimum(generator.zipf(1.5, count), len(others)) - 1]
            return np.where(np.arange(count) * 2000 < 1100 * count, 23 % size, rest), sizes
        if isinstance(domain, ms.Grid):
            centres = generator.uniform(0.1, 0.9, (4, 2)) * (domain.width, domain.height)
            places = centres[generator.integers(4, size=count)] + generator.normal(
                0.0, 1.2, (count, 2)
            )
            column, row = (
                np.clip(np.floor(places), 0, (domain.width - 1, domain.height - 1))
                .astype(np.int64)
                .T
            )
            return row * domain.width + column, sizes
        centres = generator.uniform(0.1, 0.9, 4) * size
        places = centres[generator.integers(4, size=count)] + generator.normal(
            0.0, 0.02 * size, count
        )
        return np.clip(np.floor(places), 0, size - 1).astype(np.int64), sizes

    def truth(self, held: Integers64, sizes: Integers64) -> Floats:
        """Everyone's shares, averaged over the people."""
        return np.bincount(
            held, np.repeat(1.0 / sizes, sizes), minlength=self.space.domain.size or 0
        ) / len(sizes)

    def means(self, held: Integers64, sizes: Integers64, generator: np.random.Generator) -> Floats:
        """Means of one release: randomized values, summed features, all noise at once."""
        counted = self.randomized(held, generator)
        protocol = self.protocol
        if self.most_items is None:
            sums = np.bincount(counted, minlength=self.space.domain.size or 0) @ self.table
        else:
            sums = protocol._features_of(counted, sizes, self.space).sum(axis=0)
        shape = len(sizes) / protocol.sharers
        failing = -np.expm1(-self.rates)
        noise = generator.negative_binomial(shape, failing) - generator.negative_binomial(
            shape, failing
        )
        return np.asarray((sums + noise) / (len(sizes) * self.units), dtype=np.float64)

    def randomized(self, held: Integers64, generator: np.random.Generator) -> Integers64:
        """Randomized value of every person, without a table of laws."""
        floor = self.floor
        if isinstance(floor, BoundedGeometric):
            return np.asarray(
                np.clip(
                    held + _geometric(float(floor.exact_rate), len(held), generator), 0, floor.span
                )
            )
        if isinstance(floor, PlanarGeometric):
            across, up = floor.axes
            column = np.clip(
                held % floor.width + _geometric(float(across.exact_rate), len(held), generator),
                0,
                floor.width - 1,
            )
            row = np.clip(
                held // floor.width + _geometric(float(up.exact_rate), len(held), generator),
                0,
                floor.height - 1,
            )
            return np.asarray(row * floor.width + column)
        if isinstance(floor, KaryRandomizedResponse):
            other = floor.rows()[0, 1] * floor.options  # redrawn from all labels
            return np.where(
                generator.random(len(held)) < other,
                generator.integers(floor.options, size=len(held)),
                held,
            )
        return held


def _geometric(rate: float, count: int, generator: np.random.Generator) -> Integers64:
    failing = -np.expm1(-rate)
    return generator.geometric(failing, count) - generator.geometric(failing, count)


def coverage(setting: Setting, kind: str, runs: int, seed: int = 1) -> dict[str, float]:
    """Frequency with which each statement holds.

    At occupied points, at the worst of them, and for all points at once.
    """
    generator = np.random.default_rng(seed)
    held, sizes = setting.held(kind, generator)
    truth = setting.truth(held, sizes)
    return covered(
        setting, truth, np.stack([setting.means(held, sizes, generator) for _ in range(runs)])
    )


def covered(setting: Setting, truth: Floats, means: Floats) -> dict[str, float]:
    known = setting.protocol.known(setting.space, setting.people)
    found: dict[str, float] = {}

    def note(name: str, hold: Any, together: Any) -> None:
        occupied = hold[:, truth > 0.0].mean(axis=0)
        found.update(
            {
                name: float(occupied.mean()),
                f"{name}, worst": float(occupied.min()),
                f"{name}, all": float(together.all(1).mean()),
            }
        )

    if known.single is not None:
        off = np.abs(known.single.values(means) - truth)
        note(
            "interval",
            *(
                off <= known.half_widths(means, LEVEL, simultaneous)
                for simultaneous in (False, True)
            ),
        )
        if setting.floor is not None:
            note(
                "bernstein",
                *(
                    off <= known.half_widths(means, LEVEL, simultaneous, "bernstein")
                    for simultaneous in (False, True)
                ),
            )
        found["length"] = 2.0 * float(np.median(known.half_widths(means, LEVEL, False)))
    if known.above is not None:
        note(
            "at most",
            truth <= known.at_most(means, LEVEL, False),
            truth <= known.at_most(means, LEVEL, True),
        )
        found["length"] = float(np.median(known.at_most(means, LEVEL, False)))
    if known.around is not None:
        around = (known.around.weights(setting.table) @ truth)[known.around.row_of]
        ends = [known.around_ends(means, LEVEL, simultaneous) for simultaneous in (False, True)]
        note("nearby", *((low <= around) & (around <= high) for low, high in ends))
    return found


def settings() -> Iterator[Setting]:
    """Yield lines, maps, labels and users' items, with and without a floor.

    Some features distinguish all points and some do not.
    """
    short = ms.Histogram(ms.Integers(0, 63))
    long = ms.Histogram(ms.Integers(0, 999))
    small = ms.Histogram(ms.Grid(16, 16))
    large = ms.Histogram(ms.Grid(32, 32))
    labels = ms.Histogram(ms.Categories([f"label {index}" for index in range(12)]))
    three = ms.UserHistogram(Users(Space(ms.Integers(0, 23)), 3))
    several = ms.UserHistogram(Users(Space(ms.Integers(0, 23)), None))
    for width in (1, 2, 4):
        yield Setting("line of 64", short, Ramps(width), 1 / 8)
        yield Setting("line of 1,000", long, Ramps((1, 14, 50)[width // 2]), 1 / 100)
        yield Setting("map of 16 x 16", small, ShiftedBoxes(width), 1 / 4, 20_000)
        yield Setting("map of 32 x 32", large, ShiftedBoxes(width + (width > 1)), 1 / 8, 20_000)
        yield Setting("3 items each", three, Ramps(width), 1 / 2, units=3)
        yield Setting("1 to 6 items", several, Ramps(width), 1 / 2, units=60, most_items=6)
    yield Setting("labels", labels, Cells(), 1.0)
    yield Setting("line of 64, floor", short, Ramps(1), 1 / 8, floor=BoundedGeometric(63, 10 / 8))
    yield Setting(
        "line of 1,000, floor", long, Ramps(1), 1 / 100, floor=BoundedGeometric(999, 10 / 100)
    )
    yield Setting(
        "map of 16 x 16, floor",
        small,
        Cells(),
        1 / 4,
        20_000,
        PlanarGeometric(16, 16, 10 / 4, 1.0, "euclidean"),
    )
    yield Setting(
        "map of 32 x 32, floor",
        large,
        Cells(),
        1 / 8,
        20_000,
        PlanarGeometric(32, 32, 10 / 8, 1.0, "euclidean"),
    )
    yield Setting("labels, floor", labels, Cells(), 1.0, floor=KaryRandomizedResponse(12, 4.0))
    yield Setting(
        "3 items each, floor", three, Ramps(1), 1 / 2, floor=BoundedGeometric(23, 10 / 6), units=3
    )
    yield Setting(
        "line of 64, floor and ramps", short, Ramps(2), 1 / 8, floor=BoundedGeometric(63, 10 / 8)
    )


if __name__ == "__main__":
    for one in settings():
        for people in KINDS:
            told = coverage(one, people, int(sys.argv[1]))
            print(
                f"{one.name}, {one.features}, {people}:",
                ", ".join(f"{name} {value:.3f}" for name, value in told.items()),
                flush=True,
            )

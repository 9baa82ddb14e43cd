"""Floating-point draws for simulations: accurate enough to measure errors, never for a release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from metricshuffle.estimation.inversion import Inversion
from metricshuffle.noise.polya import LARGEST_RATE, Polya
from metricshuffle.noise.polytope import Polytope
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.answer_noise import AnswerNoise, KNormNoise
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Users, earth_mover
from metricshuffle.spaces.earth_mover import needs_no_solver

# Maximum entries of a table of laws from which counts are drawn exactly; for larger tables they are
# drawn from the normal approximation.
MAX_EXACT_ENTRIES = 2**17
# Tabulated laws of noise: logarithm of the omitted mass, and largest radius.
MIN_TAIL = -40.0
MAX_TABULATED = 2e5
# Number of normal draws that take as long as one draw from a table.
ENTRIES_PER_DRAW = 16


def uniforms(count: int, randomness: Randomness) -> Floats:
    """Uniform floats in (0, 1); actual noise is never drawn from floats."""
    return (np.asarray(randomness.words(count) >> np.uint64(11), dtype=np.float64) + 0.5) * 2.0**-53


def total_errors(
    randomizer: AdditiveRandomizer | CountResponse,
    draws: int,
    people: int,
    runs: int,
    randomness: Randomness,
) -> Floats:
    """Simulated errors of one axis' total, in steps: `draws` shares of noise, `people` reports."""
    if isinstance(randomizer, CountResponse):
        # Half of the bits are ones (the variance is the same for every data set). The simulation's
        # stream seeds numpy's generator.
        source = np.random.default_rng(randomness.words(4))
        bits = people * randomizer.span
        ones = bits // 2
        seen = source.binomial(ones, 1.0 - randomizer.flip, runs) + source.binomial(
            bits - ones, randomizer.flip, runs
        )
        return np.asarray((seen - bits * randomizer.flip) / (1.0 - 2.0 * randomizer.flip) - ones)
    law, scale = randomizer.scaled_error_law(draws)
    # P(|Z| > m) = 2 tail[m+1]; |Z| is the first m with this probability below a uniform number.
    size = np.searchsorted(
        -law.tail[1:], -0.5 * (1.0 - uniforms(runs, randomness)), side="left"
    ).astype(np.float64)
    sign = np.where(randomness.words(runs) & np.uint64(1), 1.0, -1.0)
    noise = size * sign * (randomizer.granularity * scale)
    if randomizer.granularity > 1:
        from scipy.special import ndtri

        noise = noise + ndtri(uniforms(runs, randomness)) * math.sqrt(
            people * (randomizer.granularity**2 - 1) / 6.0
        )
    return np.asarray(noise)


@dataclass(frozen=True, eq=False)
class ReportLaws:
    """Laws of reports, prepared for many draws.

    One table, or one for the rows and one for the columns of a grid.
    """

    laws: tuple[Floats, ...]

    @classmethod
    def of(cls, rows: tuple[Floats, ...]) -> ReportLaws:
        """Normalize the rows of each table to sum to one."""
        return cls(tuple(law / law.sum(axis=1, keepdims=True) for law in rows))

    @cached_property
    def _ends(self) -> tuple[Floats, ...]:
        """For each table, one increasing sequence: x plus the cumulative sums of row x, by rows."""
        tables = []
        for law in self.laws:
            ends = np.cumsum(law, axis=1)
            ends[:, -1] = 1.0
            ends += np.arange(len(ends))[:, None]
            tables.append(ends.ravel())
        return tuple(tables)

    def counts(self, holders: Integers64, generator: np.random.Generator) -> Floats:
        """Count of each report if holders[v] people have the value v; on a grid, axis by axis."""
        if len(self.laws) == 1:
            law = self.laws[0]
            if law.size <= MAX_EXACT_ENTRIES:
                return np.asarray(generator.multinomial(holders, law).sum(axis=0), dtype=np.float64)
            held_at = np.flatnonzero(holders)
            if int(holders.sum()) * ENTRIES_PER_DRAW <= len(held_at) * law.shape[1]:
                return self._one_by_one(holders, generator)
            return _normal_counts(law[held_at], holders[held_at], generator)
        up, across = self.laws
        table = holders.reshape(len(up), len(across))
        # (rows, columns, reported rows) -> (reported rows, columns) -> (reported rows, columns,
        # reported columns)
        vertical = np.stack(
            [generator.multinomial(column, up).sum(axis=0) for column in table.T], axis=1
        )
        return (
            np.stack([generator.multinomial(row, across).sum(axis=0) for row in vertical])
            .astype(np.float64)
            .ravel()
        )

    def _one_by_one(self, holders: Integers64, generator: np.random.Generator) -> Floats:
        """Counts from one draw per person, faster if the table has many entries per person."""
        reports = self.laws[0].shape[1]
        values = np.repeat(np.arange(len(holders)), holders)
        # Sorted, so that the table is read sequentially; the values are sorted already.
        ended = np.searchsorted(
            self._ends[0], np.sort(values + generator.random(len(values))), side="right"
        )
        # The sum of a value and a random number just below 1 may be rounded up to the next row.
        return np.bincount(
            np.minimum(ended - values * reports, reports - 1), minlength=reports
        ).astype(np.float64)

    def counts_by_person(self, holders: Integers64, generator: np.random.Generator) -> Floats:
        """Same as `counts`, from one random number per person and axis.

        The number is the quantile of the person's report in its law, so that with the same
        generator similar laws give similar reports.
        """
        if len(self.laws) == 1:
            return self._one_by_one(holders, generator)
        (rows, columns), people = (
            (len(law) for law in self.laws),
            np.repeat(np.arange(len(holders)), holders),
        )
        moved = [
            self._moved(axis, values, generator)
            for axis, values in enumerate(np.divmod(people, columns))
        ]
        return np.bincount(moved[0] * columns + moved[1], minlength=rows * columns).astype(
            np.float64
        )

    def _moved(self, axis: int, values: Integers64, generator: np.random.Generator) -> Integers64:
        reports = self.laws[axis].shape[1]
        ended = np.searchsorted(
            self._ends[axis], values + generator.random(len(values)), side="right"
        )
        return np.asarray(np.minimum(ended - values * reports, reports - 1))


def _normal_counts(law: Floats, holders: Integers64, generator: np.random.Generator) -> Floats:
    """Same as `counts`, from normal numbers with the means and covariances of exact counts.

    This is many times faster for large tables.
    """
    noise = generator.standard_normal(law.shape)
    noise *= np.sqrt(law)
    spread = np.sqrt(holders)
    # The sum of sqrt(h) (noise - law * sum of noise), without a table of the products.
    return np.asarray((holders - spread * noise.sum(axis=1)) @ law + spread @ noise)


@dataclass(frozen=True, eq=False)
class ResponseLaw:
    """K-ary randomized response without a table: the value itself, or else a uniform value."""

    options: int
    keep: float

    @classmethod
    def of(cls, randomizer: KaryRandomizedResponse) -> ResponseLaw:
        """Convert (keep, other) into the probability of not drawing a uniform value."""
        total = randomizer.keep + (randomizer.options - 1) * randomizer.other
        return cls(randomizer.options, (randomizer.keep - randomizer.other) / total)

    def counts(self, holders: Integers64, generator: np.random.Generator) -> Floats:
        """Count of each report if holders[v] people have the value v."""
        unchanged = generator.binomial(holders, self.keep)
        others = generator.multinomial(
            int(holders.sum() - unchanged.sum()), np.full(self.options, 1.0 / self.options)
        )
        return np.asarray(unchanged + others, dtype=np.float64)

    def counts_by_person(self, holders: Integers64, generator: np.random.Generator) -> Floats:
        """Same as `counts`, from two random numbers per person.

        One decides whether the value is reported; the other is the uniform value reported if not.
        """
        values = np.repeat(np.arange(self.options), holders)
        reports = np.where(
            generator.random(len(values)) < self.keep,
            values,
            generator.integers(self.options, size=len(values)),
        )
        return np.bincount(reports, minlength=self.options).astype(np.float64)


def report_laws(randomizer: Randomizer) -> ReportLaws | ResponseLaw:
    """The laws of a randomizer's reports, prepared for many draws."""
    if isinstance(randomizer, KaryRandomizedResponse):
        return ResponseLaw.of(randomizer)
    if isinstance(randomizer, PlanarGeometric):
        across, up = randomizer.axes
        return ReportLaws.of((up.rows(), across.rows()))
    return ReportLaws.of((np.asarray(randomizer.rows(), dtype=np.float64),))


def noise_quantiles(shape: Fraction, rate: float, uniforms: Floats) -> Floats:
    """Quantiles of Polya noise of this shape and rate at the given numbers in (0, 1).

    With the same numbers, a smaller rate or a larger shape makes all of the noise larger in size.
    Numerics: a law too wide to be tabulated is approximated by the scaled law of a larger rate.
    """
    signed = 2.0 * uniforms - 1.0
    # The probability of noise that is larger in absolute value.
    beyond = np.maximum(1.0 - np.abs(signed), 2.0**-53)
    if rate >= LARGEST_RATE:
        return np.zeros_like(uniforms)
    if shape == 1:  # P(|Z| > m) = 2 p^(m + 1)/(1 + p), p = e^-rate
        sizes = np.maximum(
            np.ceil(-np.log(0.5 * beyond * (1.0 + math.exp(-rate))) / rate - 1.0), 0.0
        )
        return np.asarray(np.sign(signed) * sizes)
    wide = max(1.0, Polya(shape, rate).tail_radius(MIN_TAIL) / MAX_TABULATED)
    law = Polya(shape, rate * wide).law(MIN_TAIL)
    sizes = np.searchsorted(-2.0 * law.tail[1:], -beyond, side="left") * wide
    return np.asarray(np.sign(signed) * sizes)


@lru_cache(maxsize=1)
def _laws_of(inversion: Inversion) -> ReportLaws:
    """Report laws of an inversion, cached because many draws use the same inversion in turn."""
    return ReportLaws.of(inversion.rows)


def simulated_shares(
    inversion: Inversion, holders: Integers64, generator: np.random.Generator
) -> Floats:
    """Unbiased shares from one simulated report per item."""
    return inversion.totals(_laws_of(inversion).counts(holders, generator)) / float(holders.sum())


def simulated_noise(noise: AnswerNoise, draws: int, generator: np.random.Generator) -> Floats:
    """Draw the sum of `draws` noise vectors."""
    size = noise.coordinates
    if noise.noise == "gaussian":
        return generator.normal(0.0, noise.scale * math.sqrt(draws), size)
    if noise.noise == "l1":  # Laplace noise is the difference of two exponential variables
        return np.asarray(
            noise.scale * (generator.gamma(draws, size=size) - generator.gamma(draws, size=size))
        )
    if draws > 1000:
        return generator.normal(0.0, np.sqrt(noise.variances * draws), size)
    if isinstance(noise, KNormNoise):
        points = uniform_points(noise.polytope, draws, generator)
        radii = generator.gamma(size + 1, noise.scale, size=(draws, 1))
        return np.asarray((points * radii).sum(axis=0))
    if noise.noise == "l2":
        sphere = generator.normal(size=(draws, size))
        sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
        return np.asarray(
            (sphere * generator.gamma(size, noise.scale, size=(draws, 1))).sum(axis=0)
        )
    cube = generator.uniform(-1.0, 1.0, size=(draws, size))
    return np.asarray((cube * generator.gamma(size + 1, noise.scale, size=(draws, 1))).sum(axis=0))


def uniform_points(polytope: Polytope, count: int, generator: np.random.Generator) -> Floats:
    """Draw uniform points of a polytope, by rejection from the cube of its frame."""
    accepted: list[Floats] = []
    while sum(map(len, accepted)) < count:
        cube = generator.uniform(-1.0, 1.0, size=(max(256, count), polytope.dimension))
        accepted.append(polytope.inside(cube))
    return np.concatenate(accepted)[:count]


def needs_solver(people: Users) -> bool:
    """Whether `distance_of` needs the solver of the extra `transport` (no tree, no formula)."""
    return people.tree is None and not needs_no_solver(people.items_in)


def distance_of(people: Users, left: Floats, right: Floats) -> float:
    """Earth mover's distance between two histograms, by the tree if there is one."""
    tree = people.tree
    if tree is not None:
        return float(np.abs(tree.means(left - right)).sum())
    return earth_mover(people.items_in, left, right).distance

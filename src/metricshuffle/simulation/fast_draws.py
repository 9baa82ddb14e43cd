"""Draws for simulations, from floating point numbers: good enough for measuring errors, never for a release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from metricshuffle.estimation.inversion import Inversion
from metricshuffle.noise.polya import LARGEST_RATE, Polya
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.protocols.answer_noise import AnswerNoise
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Users, earth_mover
from metricshuffle.spaces.earth_mover import needs_no_solver

MAX_EXACT_ENTRIES = 2**17  # of the table of laws: beyond, counts are drawn from their normal approximation
MIN_TAIL, MAX_TABULATED = -40.0, 2e5  # of the law of noise: the logarithm of what is left out, and how wide a table is made
ENTRIES_PER_DRAW = 16  # normal numbers take as long as one draw from such a table


def uniforms(count: int, randomness: Randomness) -> Floats:
    """Numbers in (0, 1); real noise never passes through floats."""
    return (np.asarray(randomness.words(count) >> np.uint64(11), dtype=np.float64) + 0.5) * 2.0**-53


def total_errors(randomizer: AdditiveRandomizer | CountResponse, draws: int, people: int, runs: int, randomness: Randomness) -> Floats:
    """`runs` simulated errors of one axis' total, in steps: `draws` shares of noise, `people` reports."""
    if isinstance(randomizer, CountResponse):
        # Half of the bits are ones (the variance is the same for every data set); the stream of the simulation seeds numpy's.
        source = np.random.default_rng(randomness.words(4))
        bits = people * randomizer.span
        ones = bits // 2
        seen = source.binomial(ones, 1.0 - randomizer.flip, runs) + source.binomial(bits - ones, randomizer.flip, runs)
        return np.asarray((seen - bits * randomizer.flip) / (1.0 - 2.0 * randomizer.flip) - ones)
    law, scale = randomizer.scaled_error_law(draws)
    # P(|Z| > m) = 2 tail[m+1]: |Z| is the first m where that falls below a uniform number.
    size = np.searchsorted(-law.tail[1:], -0.5 * (1.0 - uniforms(runs, randomness)), side="left").astype(np.float64)
    sign = np.where(randomness.words(runs) & np.uint64(1), 1.0, -1.0)
    noise = size * sign * (randomizer.granularity * scale)
    if randomizer.granularity > 1:
        from scipy.special import ndtri

        noise = noise + ndtri(uniforms(runs, randomness)) * math.sqrt(people * (randomizer.granularity**2 - 1) / 6.0)
    return np.asarray(noise)


@dataclass(frozen=True, eq=False)
class ReportLaws:
    """The laws of reports, one table, or one for rows and one for columns of a grid, made ready for many draws."""

    laws: tuple[Floats, ...]

    @classmethod
    def of(cls, rows: tuple[Floats, ...]) -> ReportLaws:
        return cls(tuple(law / law.sum(axis=1, keepdims=True) for law in rows))

    @cached_property
    def _ends(self) -> tuple[Floats, ...]:
        """Where the reports of each row end in x .. x+1, one row x after the other: a rising sequence, for each table."""
        tables = []
        for law in self.laws:
            ends = np.cumsum(law, axis=1)
            ends[:, -1] = 1.0
            ends += np.arange(len(ends))[:, None]
            tables.append(ends.ravel())
        return tuple(tables)

    def counts(self, holders: Integers64, generator: np.random.Generator) -> Floats:
        """How often each report occurs if so many people hold each value; on a grid, one axis after the other."""
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
        # (rows, columns, reported rows) -> (reported rows, columns) -> (reported rows, columns, reported columns)
        vertical = np.stack([generator.multinomial(column, up).sum(axis=0) for column in table.T], axis=1)
        return np.stack([generator.multinomial(row, across).sum(axis=0) for row in vertical]).astype(np.float64).ravel()

    def _one_by_one(self, holders: Integers64, generator: np.random.Generator) -> Floats:
        """By a draw for each person: where people are few beside the entries of the table."""
        reports, values = self.laws[0].shape[1], np.repeat(np.arange(len(holders)), holders)
        # (in order, so that the table is read from its first entry to its last; values are in order already)
        ended = np.searchsorted(self._ends[0], np.sort(values + generator.random(len(values))), side="right")
        # (a number just below 1 may be rounded up to the next row)
        return np.bincount(np.minimum(ended - values * reports, reports - 1), minlength=reports).astype(np.float64)

    def counts_by_person(self, holders: Integers64, generator: np.random.Generator) -> Floats:
        """The same from one random number for each person and axis, where their report lies in its law: a law that hardly differs makes
        reports that hardly differ, from the same generator."""
        if len(self.laws) == 1:
            return self._one_by_one(holders, generator)
        (rows, columns), people = (len(law) for law in self.laws), np.repeat(np.arange(len(holders)), holders)
        moved = [self._moved(axis, values, generator) for axis, values in enumerate(np.divmod(people, columns))]
        return np.bincount(moved[0] * columns + moved[1], minlength=rows * columns).astype(np.float64)

    def _moved(self, axis: int, values: Integers64, generator: np.random.Generator) -> Integers64:
        reports = self.laws[axis].shape[1]
        ended = np.searchsorted(self._ends[axis], values + generator.random(len(values)), side="right")
        return np.asarray(np.minimum(ended - values * reports, reports - 1))


def _normal_counts(law: Floats, holders: Integers64, generator: np.random.Generator) -> Floats:
    """The same with normal numbers of the same means and covariances, those of a multinomial law: many times faster for large tables."""
    noise = generator.standard_normal(law.shape)
    noise *= np.sqrt(law)
    spread = np.sqrt(holders)
    # sum of sqrt(h) (noise - law * sum of noise), without a table of the products
    return np.asarray((holders - spread * noise.sum(axis=1)) @ law + spread @ noise)


@dataclass(frozen=True, eq=False)
class ResponseLaw:
    """K-ary randomized response: kept, or else any of the values, which takes no table."""

    options: int
    kept: float

    @classmethod
    def of(cls, randomizer: KaryRandomizedResponse) -> ResponseLaw:
        total = randomizer.keep + (randomizer.options - 1) * randomizer.other
        return cls(randomizer.options, (randomizer.keep - randomizer.other) / total)

    def counts(self, holders: Integers64, generator: np.random.Generator) -> Floats:
        """How often each report occurs if so many people hold each value."""
        unchanged = generator.binomial(holders, self.kept)
        others = generator.multinomial(int(holders.sum() - unchanged.sum()), np.full(self.options, 1.0 / self.options))
        return np.asarray(unchanged + others, dtype=np.float64)

    def counts_by_person(self, holders: Integers64, generator: np.random.Generator) -> Floats:
        """The same from two random numbers for each person: whether the value is kept, and which one is reported if not."""
        values = np.repeat(np.arange(self.options), holders)
        reports = np.where(generator.random(len(values)) < self.kept, values, generator.integers(self.options, size=len(values)))
        return np.bincount(reports, minlength=self.options).astype(np.float64)


def report_laws(randomizer: Randomizer) -> ReportLaws | ResponseLaw:
    """The laws of a randomizer's reports, ready for many draws."""
    if isinstance(randomizer, KaryRandomizedResponse):
        return ResponseLaw.of(randomizer)
    if isinstance(randomizer, PlanarGeometric):
        across, up = randomizer.axes
        return ReportLaws.of((up.rows(), across.rows()))
    return ReportLaws.of((np.asarray(randomizer.rows(), dtype=np.float64),))


def noise_quantiles(shape: Fraction, rate: float, uniforms: Floats) -> Floats:
    """Where the Polya noise of that shape and rate lies below which its law has the mass of each number in (0, 1).

    The same numbers make noise that is larger for every one of them if the rate is smaller, or the shape larger.
    Numerics: a law that is too wide to be tabulated is that of a larger rate, in proportion.
    """
    signed = 2.0 * uniforms - 1.0
    beyond = np.maximum(1.0 - np.abs(signed), 2.0**-53)  # the chance of noise that is larger, in absolute numbers
    if rate >= LARGEST_RATE:
        return np.zeros_like(uniforms)
    if shape == 1:  # P(|Z| > m) = 2 p^(m + 1)/(1 + p), p = e^-rate
        sizes = np.maximum(np.ceil(-np.log(0.5 * beyond * (1.0 + math.exp(-rate))) / rate - 1.0), 0.0)
        return np.asarray(np.sign(signed) * sizes)
    wide = max(1.0, Polya(shape, rate).tail_radius(MIN_TAIL) / MAX_TABULATED)
    law = Polya(shape, rate * wide).law(MIN_TAIL)
    sizes = np.searchsorted(-2.0 * law.tail[1:], -beyond, side="left") * wide
    return np.asarray(np.sign(signed) * sizes)


@lru_cache(maxsize=1)
def _laws_of(inversion: Inversion) -> ReportLaws:
    """By identity: one inversion is drawn from many times, then the next."""
    return ReportLaws.of(inversion.rows)


def simulated_shares(inversion: Inversion, holders: Integers64, generator: np.random.Generator) -> Floats:
    """Unbiased shares from one simulated report for each item."""
    return inversion.totals(_laws_of(inversion).counts(holders, generator)) / float(holders.sum())


def simulated_noise(noise: AnswerNoise, draws: int, generator: np.random.Generator) -> Floats:
    """A sum of `draws` noise vectors."""
    size = noise.coordinates
    if noise.noise == "gaussian":
        return generator.normal(0.0, noise.scale * math.sqrt(draws), size)
    if noise.noise == "l1":  # a Laplace number is the difference of two exponential ones
        return np.asarray(noise.scale * (generator.gamma(draws, size=size) - generator.gamma(draws, size=size)))
    if draws > 1000:
        return generator.normal(0.0, math.sqrt(noise.variance * draws), size)
    if noise.noise == "l2":
        sphere = generator.normal(size=(draws, size))
        sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
        return np.asarray((sphere * generator.gamma(size, noise.scale, size=(draws, 1))).sum(axis=0))
    cube = generator.uniform(-1.0, 1.0, size=(draws, size))
    return np.asarray((cube * generator.gamma(size + 1, noise.scale, size=(draws, 1))).sum(axis=0))


def needs_solver(people: Users) -> bool:
    """Whether `distance_of` takes the solver of the extra `transport`: neither a tree nor a formula tells it."""
    return people.tree is None and not needs_no_solver(people.items_in)


def distance_of(people: Users, left: Floats, right: Floats) -> float:
    """The earth mover's distance of two histograms, through the tree where there is one."""
    tree = people.tree
    if tree is not None:
        return float(np.abs(tree.means(left - right)).sum())
    return earth_mover(people.items_in, left, right).distance

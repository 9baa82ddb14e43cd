"""Features of quantiles, spread and shares above: slopes, moves, answers, intervals and errors."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import NotCertified
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.features import LineAnswers, space_of
from metricshuffle.protocols.features.line_answers import AboveWindows, Moments, QuantileWindows
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric

RATE = 0.01
LINE = ms.Integers(0, 1000)
AT = (0.1, 0.5, 0.9)
SETS: dict[str, tuple[LineQuery, LineAnswers]] = {
    "windows": (ms.Quantiles(ms.Integers(0, 20)), QuantileWindows.of_width(3, 20)),
    "edges": (
        ms.Quantiles(ms.Integers(0, 20), edges=(2, 3, 9)),
        QuantileWindows(edges=(0, 2, 3, 9, 20)),
    ),
    "bins": (ms.Quantiles(ms.Interval(0.0, 2.0), step=0.25), QuantileWindows.of_width(2, 7)),
    "above": (ms.ShareAbove(ms.Integers(0, 20), (5, 12), 4), AboveWindows(width=4, ends=(6, 13))),
    "moments": (ms.Spread(ms.Integers(0, 20)), Moments(last=20)),
    "odd moments": (ms.Spread(ms.Integers(0, 7)), Moments(last=7)),
    "moments of two": (ms.Spread(ms.Interval(0.0, 1.0), 0.5), Moments(last=1)),
}


@check_all("name", SETS)
def test_features_are_those_that_a_query_offers(name: str) -> None:
    query, features = SETS[name]
    assert features.check(query)
    offered = list(type(features).offered_for(query, 1000, 0.3))
    assert len(offered) == 1
    assert offered[0].check(query)
    assert not features.check(ms.Histogram(ms.Integers(0, 20)))


@check_all("name", SETS)
def test_the_slope_is_the_largest_of_all_pairs(name: str) -> None:
    query, features = SETS[name]
    space = space_of(query)
    rates = features.weights(space) * 0.7
    table = features.validate_table(space).toarray()
    size, step = table.shape[0], query.step
    losses = [
        float(np.abs(table[x] - table[y]) @ rates) / (step * abs(x - y))
        for x in range(size)
        for y in range(x)
    ]
    slope = features.slope(space, rates)
    assert max(losses) * (1.0 - 1e-12) <= slope <= max(losses) * (1.0 + 1e-9)


@check_all("name", SETS)
def test_moves_dominate_every_pair_within_the_distance(name: str) -> None:
    query, features = SETS[name]
    space = space_of(query)
    rates = features.weights(space)
    table = features.table(space).toarray()
    for steps in (1, 2, 5, table.shape[0] - 1):
        moves = list(features.moves(space, rates, steps * query.step))
        for x in range(table.shape[0]):
            for y in range(max(0, x - steps), x):
                changes = np.abs(table[x] - table[y])
                assert any(_dominates(move, rates, changes) for move in moves) or not changes.any()


def _dominates(move: Any, rates: Floats, changes: Any) -> bool:
    for rate in np.unique(rates):
        mine = np.sort(changes[rates == rate])[::-1]
        sizes = np.repeat(move.sizes[move.rates == rate], move.counts[move.rates == rate])
        padded = np.zeros(len(mine))
        padded[: len(sizes)] = np.sort(sizes)[::-1]
        if np.any(mine > padded):
            return False
    return True


def test_many_uneven_windows_have_few_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of moves are replaced by one that changes no feature less than any of them."""
    from metricshuffle.protocols.features import windows

    query = ms.Quantiles(ms.Integers(0, 40), edges=(1, 3, 4, 9, 15, 16, 30))
    features = QuantileWindows(edges=query.window_edges or ())
    space = space_of(query)
    rates = features.weights(space)
    every = list(features.moves(space, rates, 12.0))
    monkeypatch.setattr(windows, "MAX_MOVES", 3)
    few = list(features.moves(space, rates, 12.0))
    assert len(few) == 3 < len(every)
    table = features.table(space).toarray()
    for x in range(41):
        for y in range(max(0, x - 12), x):
            assert any(_dominates(move, rates, np.abs(table[x] - table[y])) for move in few)


def test_the_width_of_the_windows() -> None:
    """Rule: sqrt(1.96 sqrt 2 range/(rate n))."""
    for people, width in ((1000, 17), (10_000, 5), (10**9, 1)):
        (features,) = QuantileWindows.offered_for(ms.Quantiles(LINE), people, RATE)
        assert features == QuantileWindows.of_width(width, 1000)
    (few,) = QuantileWindows.offered_for(ms.Quantiles(ms.Integers(0, 5)), 1, RATE)
    assert few == QuantileWindows.of_width(2, 5)
    (fine,) = QuantileWindows.offered_for(ms.Quantiles(ms.Integers(0, 65_000)), 10**12, 1.0)
    assert len(fine.edges) - 1 <= 4096


def sampled(rates: Floats, generator: np.random.Generator) -> Floats:
    """Discrete Laplace noise, by another sampler."""
    chances = -np.expm1(-rates)
    return np.asarray(generator.geometric(chances) - generator.geometric(chances))


def lognormal(people: int, generator: np.random.Generator) -> Any:
    return np.clip(np.rint(generator.lognormal(5.3, 0.6, people)), 0, 1000).astype(np.int64)


def uniform(people: int, generator: np.random.Generator) -> Any:
    return generator.integers(0, 1001, people)


def spike(people: int, generator: np.random.Generator) -> Any:
    return np.where(generator.random(people) < 0.6, 250, uniform(people, generator))


def halves(people: int, generator: np.random.Generator) -> Any:
    return np.repeat([0, 1000], people // 2)


def point(people: int, generator: np.random.Generator) -> Any:
    return np.full(people, 250)


def releases(
    query: LineQuery,
    features: LineAnswers,
    values: Any,
    runs: int,
    seed: int = 1,
    rate: float = RATE,
) -> tuple[Floats, Floats]:
    """Errors and coverage of the numbers of `runs` releases, one row each."""
    generator = np.random.default_rng(seed)
    space = space_of(query)
    rates = features.weights(space) * RATE / features.slope(space, features.weights(space))
    people = len(values)
    noise = SumNoise(Fraction(1), rates, float(people))
    counts = np.bincount(query.inputs(values, 1.0).numbers[:, 0], minlength=query.cells)
    exact = counts @ features.table(space)
    truth = query.exact(counts)
    errors, inside = [], []
    for _ in range(runs):
        means = (exact + sampled(rates, generator)) / people
        estimate = features.estimate(query, means, noise, people)
        interval = np.asarray(query.answer(estimate).interval)
        errors.append(np.abs(estimate.totals - truth))
        inside.append((interval[:, 0] <= truth) & (truth <= interval[:, 1]))
    return np.array(errors), np.array(inside, dtype=np.float64)


def features_for(query: LineQuery, people: int) -> LineAnswers:
    for kind in (QuantileWindows, AboveWindows, Moments):
        for features in kind.offered_for(query, people, RATE):
            return features
    raise AssertionError


TABLE = [
    # people, values, errors at 0.1, 0.5 and 0.9 of an independent simulation of 300 releases
    (1000, lognormal, (1.9, 1.7, 6.1)),
    (1000, uniform, (4.3, 3.8, 5.4)),
    (10_000, lognormal, (0.6, 0.6, 2.2)),
    (10_000, uniform, (1.7, 1.4, 2.0)),
]


@pytest.mark.thorough
@check_all("people, values, expected", TABLE)
def test_errors_of_quantiles(people: int, values: Any, expected: tuple[float, ...]) -> None:
    """Mean over data sets, because one set's error depends on where its quantiles lie."""
    query = ms.Quantiles(LINE, AT)
    features = features_for(query, people)
    table = features.table(space_of(query))
    errors = []
    for seed in range(40):
        generator = np.random.default_rng(seed)
        counts = np.bincount(values(people, generator), minlength=1001)
        noise = sampled(np.full((30, table.shape[1]), RATE), generator)
        numbers = features.readout(query, (counts @ table + noise) / people, people)
        errors.append(np.abs(numbers - query.exact(counts)))
    mean = np.concatenate(errors).mean(axis=0)
    assert mean.mean() <= 1.1 * np.mean(expected), mean


@pytest.mark.thorough
def test_errors_of_spread() -> None:
    """Lognormal numbers at a split of 0.4/0.6: about 0.76 at 1,000 people, 0.076 at 10,000."""
    query = ms.Spread(LINE)
    for people, largest in ((1000, 0.77), (10_000, 0.078)):
        values = lognormal(people, np.random.default_rng(4))
        errors, inside = releases(query, Moments(last=1000), values, 2000)
        assert errors[:, 1].mean() <= 1.1 * largest
        assert inside.mean(axis=0).min() >= 0.93


def test_errors_of_a_share_above() -> None:
    """1/(rate w n): 0.1, 0.005 and 0.001 for widths 1, 20 and 100."""
    for fade, error in ((1, 0.1), (20, 0.005), (100, 0.001)):
        query = ms.ShareAbove(LINE, (300, 600), fade)
        noise = SumNoise(Fraction(1), np.full(2, RATE), 1000.0)
        assert AboveWindows.of(query).expected_error(query, noise) == pytest.approx(error, rel=1e-4)


COVERED = [
    (query, values)
    for query in (ms.Quantiles(LINE, AT), ms.Spread(LINE), ms.ShareAbove(LINE, (249, 600), 50))
    for values in (spike, uniform, halves, point)
]


def covered(query: LineQuery, values: Any, people: int, runs: int) -> float:
    features = features_for(query, people)
    drawn = values(people, np.random.default_rng(5))
    return float(releases(query, features, drawn, runs, seed=2)[1].mean(axis=0).min())


@check_all("query, values", COVERED)
def test_intervals_cover_a_sample(query: LineQuery, values: Any) -> None:
    assert covered(query, values, 1000, 20) >= 0.8


@pytest.mark.slow
@check_all("query, values", COVERED)
def test_intervals_cover(query: LineQuery, values: Any) -> None:
    for people in (200, 1000, 10_000):
        assert covered(query, values, people, 200) >= 0.93


@pytest.mark.slow
def test_single_thresholds_cover_where_the_share_is_whole() -> None:
    """Width 1, two distant halves and the median: the tightest case known."""
    query = ms.Quantiles(LINE, edges=tuple(range(1001)))
    features = features_for(query, 1000)
    values = halves(1000, np.random.default_rng(1))
    assert releases(query, features, values, 400)[1].mean() >= 0.93


def test_without_noise_the_answers_are_exact() -> None:
    generator = np.random.default_rng(8)
    values = generator.integers(0, 21, 37)
    for query, features in (
        (ms.Quantiles(ms.Integers(0, 20), (0.05, 0.5, 0.9)), QuantileWindows.of_width(1, 20)),
        (ms.Spread(ms.Integers(0, 20)), Moments(last=20)),
        SETS["above"],
    ):
        counts = np.bincount(query.inputs(values, 1.0).numbers[:, 0], minlength=query.cells)
        means = counts @ features.table(space_of(query)) / 37
        assert np.allclose(features.readout(query, means, 37), query.exact(counts))


def test_the_interval_of_a_deviation_contains_that_of_every_mean_in_the_box() -> None:
    """Against a grid of true means in the box around the measured ones."""
    query = ms.Spread(ms.Integers(0, 10))
    features = Moments(last=10)
    noise = SumNoise(Fraction(1), np.array([0.5, 0.2]), 10.0)
    radii = noise.single_radii(0.025)
    for measured in ([5.2, 6.0], [1.0, 20.0], [9.5, 21.0], [5.0, -1.0]):
        means = np.array(measured)
        low, high = features.estimate(query, means, noise, 10).interval(0.95)
        for a in np.linspace(means[0] - radii[0], means[0] + radii[0], 41):
            for b in np.linspace(means[1] - radii[1], means[1] + radii[1], 41):
                variance = b - (a - 5) ** 2
                if 0 <= a <= 10 and 0.0 <= variance <= 25.0:
                    assert low[1] - 1e-9 <= math.sqrt(variance) <= high[1] + 1e-9


@check_all("name", SETS)
def test_all_intervals_at_once_are_no_shorter(name: str) -> None:
    query, features = SETS[name]
    space = space_of(query)
    noise = SumNoise(Fraction(1), features.weights(space) * 0.5, 50.0)
    counts = np.full(query.cells, 2)
    means = counts @ features.table(space) / counts.sum()
    estimate = features.estimate(query, means, noise, 50)
    alone = estimate.interval(0.9)
    together = estimate.interval(0.9, simultaneous=True)
    assert np.all(together[0] <= alone[0])
    assert np.all(together[1] >= alone[1])


def test_windows_of_other_lines_are_refused() -> None:
    for features in (
        QuantileWindows(edges=(0, 4)),
        AboveWindows(width=2, ends=(9,)),
        Moments(last=3),
    ):
        with pytest.raises(ms.InputError):
            features.table(space_of(ms.Spread(ms.Integers(0, 7))))
    with pytest.raises(ms.InputError, match="overlap"):
        AboveWindows(width=3, ends=(4, 6))
    with pytest.raises(ms.InputError, match="increase"):
        QuantileWindows(edges=(0, 3, 3))
    with pytest.raises(ms.InputError, match="larger step"):
        Moments(last=2**17).table(ms.Space(ms.Integers(0, 2**17)))


@check_all("name", ["windows", "above", "moments"])
def test_a_task_that_randomizes_values_first_is_refused(name: str) -> None:
    """Intervals would be those of randomized values: a deviation of 8 for people at one point."""
    query = SETS[name][0]
    target = ms.Target(epsilon=1.0, delta=1e-6, distance=5.0)
    task = ms.plan(query, target, users=50, trusted="nobody").task
    floor = BoundedGeometric(query.cells - 1, 0.05)
    protocol = task.protocol.model_copy(update={"floor": floor})
    with pytest.raises(NotCertified, match="randomized first in a way that is not accounted for"):
        task.model_copy(update={"protocol": protocol}).verify()

"""Intervals of quantiles from windows (Q1), against brute force."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from metricshuffle.errors import InputError
from metricshuffle.estimation.interval_widths import SumNoise
from metricshuffle.estimation.quantile_intervals import quantile_hull, quantile_points
from metricshuffle.protocols.features.line_answers import whole_radii


def drawn_windows(generator: np.random.Generator, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint windows, with gaps or without."""
    inner = np.flatnonzero(generator.random(last - 1) < 0.4) + 1
    edges = np.concatenate([[0], inner, [last]])
    chosen = generator.random(len(edges) - 1) < 0.8
    chosen[generator.integers(len(chosen))] = True
    return edges[:-1][chosen], edges[1:][chosen]


def test_the_quantile_is_in_the_hull_if_two_noises_are_within_their_radii() -> None:
    """Random windows, people and shares, also whole ones; the other noises are arbitrary."""
    generator = np.random.default_rng(1)
    cases = 0
    for _ in range(3000):
        last = int(generator.integers(1, 15))
        starts, ends = drawn_windows(generator, last)
        people = int(generator.integers(1, 12))
        counts = np.bincount(generator.integers(0, last + 1, people), minlength=last + 1)
        reached = np.cumsum(counts)
        share = Fraction(int(generator.integers(1, 10)), 10)
        quantile = int(np.argmax(reached * share.denominator >= share.numerator * people))
        sums = np.array([reached[s:e].sum() for s, e in zip(starts, ends, strict=True)])
        needed = np.array([-(-share * people * int(w) // 1) for w in ends - starts], dtype=np.int64)
        radii = generator.integers(0, 6, len(starts))
        noise = generator.integers(-40, 41, len(starts))
        after = np.searchsorted(starts, quantile)
        before = np.searchsorted(ends, quantile, side="right") - 1
        for window in (after, before):
            if 0 <= window < len(starts):
                noise[window] = generator.integers(-radii[window], radii[window] + 1)
        low, high = quantile_hull(starts, ends, sums + noise, radii, needed, last)
        assert 0 <= low <= quantile <= high <= last
        cases += 1
    assert cases == 3000


def test_without_noise_single_thresholds_give_the_quantile_itself() -> None:
    generator = np.random.default_rng(2)
    for _ in range(300):
        last = int(generator.integers(1, 12))
        people = int(generator.integers(1, 30))
        counts = np.bincount(generator.integers(0, last + 1, people), minlength=last + 1)
        reached = np.cumsum(counts)
        share = Fraction(int(generator.integers(1, 20)), 20)
        needed = -(-share * people // 1)
        quantile = int(np.argmax(reached >= needed))
        thresholds = np.arange(last)
        hull = quantile_hull(
            thresholds,
            thresholds + 1,
            reached[:-1],
            np.zeros(last, dtype=np.int64),
            np.full(last, int(needed)),
            last,
        )
        assert hull == (quantile, quantile)
        points = quantile_points(counts / people, (float(share),), people)
        assert points.tolist() == [quantile]


def test_two_distant_halves_have_a_hull_that_spans_the_gap() -> None:
    """Half of the people at each end: one person less would move the median across."""
    last = 100
    starts = np.arange(0, last, 10)
    ends = starts + 10
    sums = np.full(10, 5 * 10)
    needed = np.full(10, 5 * 10)
    assert quantile_hull(starts, ends, sums, np.full(10, 3), needed, last) == (0, last)


def test_the_golden_radius() -> None:
    """Discrete Laplace noise of rate 0.01 exceeds 300 with probability at most 0.025."""
    noise = SumNoise(Fraction(1), np.array([0.01]), 1000.0)
    assert whole_radii(noise, 0.025).tolist() == [300]
    tail = np.exp(-0.01 * 301) / (1.0 + np.exp(-0.01))
    assert tail <= 0.025 < tail * np.exp(0.01)


def test_overlapping_windows_are_refused() -> None:
    ones = np.ones(2, dtype=np.int64)
    with pytest.raises(InputError, match="disjoint"):
        quantile_hull(np.array([0, 1]), np.array([2, 3]), ones, ones, ones, 3)
    with pytest.raises(InputError, match="radii"):
        quantile_hull(np.array([0, 2]), np.array([2, 3]), ones, -ones, ones, 3)

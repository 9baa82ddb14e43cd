"""Correlated noise against the joint law of both numbers of messages, by definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.stats import nbinom

from metricshuffle.errors import InputError, NotCertified
from metricshuffle_papers.enhancing_metric_privacy.correlated_noise import (
    CorrelatedNoise,
    negative_binomial,
)
from metricshuffle_papers.reproduction import Settings, items

Floats = NDArray[np.float64]
SIZE = 56


def person(noise: CorrelatedNoise, value: int, users: int) -> Floats:
    """Joint law of one person's messages +1 and -1, from the parts of the three numbers."""
    counts = np.arange(SIZE)
    ends = nbinom.pmf(counts, 1.0 / users, -math.expm1(-noise.rate))
    third = nbinom.pmf(counts, noise.shape / users, 1.0 - noise.ratio)
    law = np.zeros((SIZE, SIZE))
    for c in range(SIZE - value):
        first = np.concatenate([np.zeros(value + c), ends])[:SIZE]
        second = np.concatenate([np.zeros(c), ends])[:SIZE]
        law += third[c] * np.outer(first, second)
    return law


def everybody(noise: CorrelatedNoise, values: list[int]) -> Floats:
    law = np.zeros((SIZE, SIZE))
    law[0, 0] = 1.0
    for value in values:
        law = fftconvolve(law, person(noise, value, len(values)))[:SIZE, :SIZE]
    return np.asarray(law)


@pytest.mark.parametrize("distance", [1, 2, 3])
@pytest.mark.parametrize("others", [[], [1], [0, 2]])
@pytest.mark.parametrize("noise", [CorrelatedNoise(1.2, 2.5, 0.45), CorrelatedNoise(2.0, 0.7, 0.3)])
def test_delta_is_that_of_the_messages(
    noise: CorrelatedNoise, others: list[int], distance: int
) -> None:
    low = everybody(noise, [0, *others])
    high = everybody(noise, [distance, *others])
    for epsilon in (0.0, 0.4, 1.0, noise.rate * distance, noise.rate * distance + 1.5):
        truth = max(
            np.maximum(first - math.exp(epsilon) * second, 0.0).sum()
            for first, second in ((low, high), (high, low))
        )
        assert noise.delta(epsilon, distance) == pytest.approx(truth, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 0.99])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-8])
@pytest.mark.parametrize("span", [1, 3])
def test_the_quoted_constants_are_enough(epsilon: float, delta: float, span: int) -> None:
    """In both directions, for every move; here by the laws of scipy."""
    shape, ratio = negative_binomial(epsilon, delta, span)
    law = nbinom.pmf(np.arange(int(60 * shape / (1.0 - ratio)) // 4), shape, 1.0 - ratio)
    for move in range(1, span + 1):
        moved = np.concatenate([np.zeros(move), law])
        still = np.concatenate([law, np.zeros(move)])
        for first, second in ((still, moved), (moved, still)):
            assert np.maximum(first - math.exp(epsilon) * second, 0.0).sum() <= delta


@pytest.mark.parametrize(
    ("epsilon", "delta", "span"), [(0.5, 1e-4, 1), (0.9, 1e-6, 1), (1, 0.01, 4)]
)
def test_the_published_noise_keeps_its_promise(epsilon: float, delta: float, span: int) -> None:
    noise = CorrelatedNoise.published(epsilon, delta, span)
    found = [noise.delta(epsilon * move / span, move) for move in (1, span)]
    assert 0.0 <= found[1] <= delta
    assert noise.rate == pytest.approx(0.99 * epsilon / span)


def test_without_the_third_number_little_is_hidden() -> None:
    """The analyst drops the messages -1, and a single geometric number hides the sum."""
    bare = CorrelatedNoise(0.5, 1e-6, 0.5)
    assert bare.delta(0.5, 1) > 0.1
    assert CorrelatedNoise.published(0.5, 1e-4).delta(0.5, 1) < 1e-4


def test_golden_errors_and_messages() -> None:
    """Discrete Laplace noise of rate 0.99; c has mean r p/(1 - p)."""
    noise = CorrelatedNoise.published(1.0, 1e-6)
    assert noise.shape == pytest.approx(44.4465316739, rel=1e-11)
    assert noise.ratio == pytest.approx(math.exp(-0.002), rel=1e-15)
    assert noise.variance == pytest.approx(1.88180183736, rel=1e-11)
    steps = np.arange(-200, 201)
    law = np.exp(-0.99 * np.abs(steps))
    assert noise.variance == pytest.approx((steps**2 * law).sum() / law.sum(), rel=1e-12)
    third = noise.shape / math.expm1(0.002)
    assert noise.messages(10_000, 0.5) == pytest.approx(
        0.5 + 2.0 * (third + 1.0 / math.expm1(0.99)) / 10_000
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: CorrelatedNoise(0.0, 1.0, 0.5), "rate"),
        (lambda: CorrelatedNoise(1.0, 1.0, 1.0), "ratio must lie"),
        (lambda: CorrelatedNoise(1.0, 1.0, 0.5).delta(1.0, 0), "distance must be a whole"),
        (lambda: CorrelatedNoise(1.0, 1.0, 0.5).delta(math.nan, 1), "epsilon"),
        (lambda: negative_binomial(2.0, 0.1), "epsilon"),
        (lambda: negative_binomial(0.5, 0.0), "delta"),
        (lambda: negative_binomial(0.5, 0.1, 0), "span"),
    ],
)
def test_wrong_parameters(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(InputError, match=words):
        call()


def test_too_much_noise_to_list() -> None:
    with pytest.raises(NotCertified, match="too many to list"):
        CorrelatedNoise.published(1e-4, 1e-6).delta(1e-4, 1)


def test_the_baseline_as_an_item() -> None:
    rows = items()["shuffler-section-5-1"].run(Settings(quick=True)).rows
    promises = [row for row in rows if row.verdict != "ours"]
    assert [row.verdict for row in promises] == ["loose"] * 3
    assert all(row.ours is not None and 0.0 < row.ours <= 1e-4 for row in promises)
    spread = next(row for row in rows if row.label.startswith("epsilon 0.5: standard"))
    assert spread.as_published == pytest.approx(2.8275, abs=1e-3)
    assert spread.ratio == pytest.approx(0.99, abs=1e-3)

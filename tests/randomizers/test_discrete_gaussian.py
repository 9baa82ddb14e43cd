"""Clamped discrete Gaussian: law, guarantee with delta, estimator, and amplification."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import metricshuffle as ms
from metricshuffle.errors import InputError
from metricshuffle.randomizers import BoundedGeometric, Channel, DiscreteGaussian
from metricshuffle.randomness import Randomness
from metricshuffle.testing import check_randomizer


def test_it_is_what_it_says() -> None:
    check_randomizer(DiscreteGaussian(2, 1.0), draws=2_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "randomizer",
    [
        DiscreteGaussian(8, 4.0),
        DiscreteGaussian(32, 8.0),
        DiscreteGaussian(4, 2.0, 1),
        DiscreteGaussian(1, 0.5, 0),
    ],
)
def test_larger_ones_are_what_they_say(randomizer: DiscreteGaussian) -> None:
    check_randomizer(randomizer)


def test_the_law_in_forty_digits() -> None:
    randomizer = DiscreteGaussian(3, 1.5, 2)
    with mpmath.workdps(40):
        total = mpmath.fsum(
            mpmath.exp(-(mpmath.mpf(z) ** 2) / mpmath.mpf("4.5")) for z in range(-60, 61)
        )

        def noise(z: int) -> mpmath.mpf:
            return mpmath.exp(-(mpmath.mpf(z) ** 2) / mpmath.mpf("4.5")) / total

        for x in range(4):
            row = randomizer.law(x)
            for y in range(1, 7):
                assert float(row[y]) == pytest.approx(float(noise(y - 2 - x)), rel=1e-12)
            assert float(row[0]) == pytest.approx(
                float(mpmath.fsum(noise(z) for z in range(-60, -2 - x + 1))), rel=1e-9
            )
    assert randomizer.reported(np.array([0, 7])).tolist() == [-2, 5]


def test_private_up_to_a_delta() -> None:
    """Close to the Gaussian curve: sum (K_a - e K_b)_+ of a shift by one, by mpmath."""
    randomizer = DiscreteGaussian(1, 2.0, 30)
    profile = randomizer.local_profile()
    for epsilon in (0.2, 0.5, 1.0):
        with mpmath.workdps(30):
            masses = {z: mpmath.exp(-(mpmath.mpf(z) ** 2) / 8) for z in range(-80, 82)}
            total = mpmath.fsum(masses.values())
            exact = (
                mpmath.fsum(
                    max(0, masses[z] - mpmath.exp(epsilon) * masses[z - 1]) for z in range(-79, 82)
                )
                / total
            )
        assert profile.delta(epsilon, 1.0) == pytest.approx(float(exact), rel=1e-9)
    assert profile.epsilon(1e-6, 1.0) < 0.6 * profile.pure(1.0)


def test_the_estimator_has_the_variance_of_the_noise() -> None:
    for span, sigma in ((2, 1.0), (8, 4.0), (16, 4.0)):
        assert DiscreteGaussian(span, sigma).variances().mean() < 1.001 * sigma**2
    values = np.repeat(np.arange(9), 2_000)
    randomizer = DiscreteGaussian(8, 2.0)
    total = float(randomizer.totals(randomizer.reports(values, Randomness.seeded("gaussian")))[0])
    assert abs(total - values.sum()) < 6.0 * math.sqrt(len(values)) * 2.0


def test_shuffled_it_hides_less_than_geometric_noise_of_the_same_variance() -> None:
    """Far reports are rare among the others, so geometric noise of one variance is better."""
    gaussian = DiscreteGaussian(8, 4.0, 8)
    geometric = BoundedGeometric(8, 0.32)
    assert geometric.variances()[:, 0].max() >= gaussian.variances().max()
    ends = [ms.amplify(one, 10**4).epsilon(1e-6) for one in (gaussian, geometric)]
    assert ends[0].lower > 2.0 * ends[1].upper
    assert ends[0].upper < 1.01 * ends[0].lower


def test_what_is_refused() -> None:
    for words, said in (
        ((0, 1.0), "span"),
        ((4, 0.1), "sigma"),
        ((4, 1.0, -1), "margin"),
        ((2_000, 100.0), "larger units"),
        ((4, -1.0), "sigma"),
    ):
        with pytest.raises(InputError, match=said):
            DiscreteGaussian(*words)


def test_all_pairs_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand values have a million pairs, which took minutes one by one."""
    small = DiscreteGaussian(30, 6.0, 3)
    pairs = [(a, b) for a in range(31) for b in range(31) if a != b]
    assert small.local_profile().pure(30.0) == max(small.local_epsilon(a, b) for a, b in pairs)
    assert (
        small.local_profile().pure(2.0)
        == max(small.local_epsilon(a, b) for a, b in pairs if abs(a - b) <= 2)
        < small.local_epsilon()
    )
    looked: list[tuple[int, ...]] = []
    epsilon = Channel.local_epsilon

    def counted(channel: Channel, *pair: int) -> float:
        looked.append(pair)
        return epsilon(channel, *pair)

    monkeypatch.setattr(Channel, "local_epsilon", counted)
    assert 0.0 < small.local_profile().pure(30.0) < math.inf
    assert len(looked) == 1

"""Properties of every noisy sum, for random parameters."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.oracles import sgdl

from metricshuffle.accounting.sums.additive_noise import (
    AdditiveNoise,
    QuantisedProfile,
    coarse_slope,
)
from metricshuffle.accounting.sums.planar_noise import (
    PerAxisProfile,
    PlanarNoise,
    displacements,
    planar_shift_delta,
)
from metricshuffle.noise.polya import Geometric, Polya
from metricshuffle.numerics.certified_search import last_certified

# Certified values may exceed the truth by a little, so monotone means monotone up to this.
ROUNDING = 1 + 1e-5
# Below this the masses underflow.
SMALLEST = 1e-270

# Down to 1e-6 in the fast suite and with at most a few thousand cells: every law is tabulated anew.
shapes = st.one_of(
    st.floats(1e-6, 1.0),
    st.floats(1.0, 2000.0),
    st.sampled_from([1.0, math.nextafter(1.0, 0.0), math.nextafter(1.0, 2.0)]),
)
rates = st.floats(math.log(0.02), math.log(20.0)).map(math.exp)
# Next to the pure epsilon delta is the small difference of two sums, and what is certified is
# mostly their rounding.
fractions = st.floats(0.0, 0.95)
distances = st.integers(1, 40)


def polya(shape: float, rate: float) -> AdditiveNoise:
    return AdditiveNoise(Polya(Fraction(shape), rate))


@settings(max_examples=60, deadline=None)
@given(shapes, rates, distances, fractions, fractions)
def test_delta_falls_in_epsilon(
    shape: float, rate: float, distance: int, one: float, other: float
) -> None:
    profile = polya(shape, rate)
    small, large = sorted(profile.pure(distance) * fraction for fraction in (one, other))
    assert (
        0.0
        <= profile.delta(large, distance)
        <= profile.delta(small, distance) * ROUNDING + SMALLEST
    )
    assert profile.delta(small, distance) <= 1.0
    assert profile.delta(profile.pure(distance), distance) == 0.0


@settings(max_examples=60, deadline=None)
@given(shapes, rates, distances, distances, fractions)
def test_delta_and_epsilon_rise_in_distance(
    shape: float, rate: float, one: int, other: int, fraction: float
) -> None:
    near, far = sorted((one, other))
    profile = polya(shape, rate)
    epsilon = fraction * profile.pure(near)
    assert profile.delta(epsilon, near) <= profile.delta(epsilon, far) * ROUNDING + SMALLEST
    assert profile.pure(near) <= profile.pure(far) * ROUNDING


@settings(max_examples=60, deadline=None)
@given(shapes, st.floats(1.0, 5.0), rates, distances, fractions)
def test_delta_falls_in_users_and_in_noise(
    shape: float, more: float, rate: float, distance: int, fraction: float
) -> None:
    profile = polya(shape, rate)
    epsilon = fraction * profile.pure(distance)
    delta = profile.delta(epsilon, distance)
    assert polya(shape * more, rate).delta(epsilon, distance) <= delta * ROUNDING + SMALLEST
    assert (
        polya(shape, rate / min(more, 2.0)).delta(epsilon, distance) <= delta * ROUNDING + SMALLEST
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 1000), rates, distances, st.floats(-12, -1).map(lambda power: 10**power))
def test_epsilon_of_whole_geometrics_is_at_most_rate_times_distance(
    users: int, rate: float, distance: int, delta: float
) -> None:
    profile = polya(users, rate)
    epsilon = profile.epsilon(delta, distance)
    assert 0.0 <= epsilon <= profile.pure(distance) == math.nextafter(rate * distance, math.inf)
    assert profile.covers(epsilon, delta, distance, "flat")
    if epsilon > 0.0:
        assert not profile.covers(epsilon * (1 - 1e-9), delta, distance, "flat")


@given(rates, st.integers(0, 10**6))
def test_geometric_noise_is_pure_at_exactly_rate_times_distance(rate: float, distance: int) -> None:
    found = Fraction(AdditiveNoise(Geometric(rate)).epsilon(0.0, distance))
    assert (
        Fraction(rate) * distance <= found <= Fraction(rate) * distance * (1 + Fraction(1, 2**51))
    )


@settings(max_examples=40, deadline=None)
@given(rates, st.integers(1, 30), fractions)
def test_geometric_delta_in_closed_form(rate: float, distance: int, fraction: float) -> None:
    """Shape 1 and epsilon = rate (d - 2j): f(z) exceeds e^epsilon f(z-d) exactly for z < j."""
    j = int(fraction * distance / 2)
    epsilon = rate * (distance - 2 * j)
    p = math.exp(-rate)
    # Up to 0 the log ratio is rate * d, from there it falls by two rates a step.
    head = (1 / (1 + p)) * -math.expm1(-2 * rate * j)
    middle = (1 - p) / (1 + p) * math.fsum(p**z - p ** (2 * j - z) for z in range(1, j + 1))
    assert AdditiveNoise(Geometric(rate)).delta(epsilon, distance) == pytest.approx(
        head + middle, rel=1e-8, abs=1e-10
    )


@settings(max_examples=12, deadline=None)
@given(st.floats(0.01, 200.0), st.floats(0.5, 8.0), st.integers(1, 12), fractions)
def test_delta_is_never_below_fifty_digits(
    shape: float, rate: float, distance: int, fraction: float
) -> None:
    profile = polya(shape, rate)
    epsilon = fraction**2 * profile.pure(distance)
    truth = sgdl.delta(sgdl.masses(shape, rate, 60 + distance), epsilon, distance)
    assert truth <= profile.delta(epsilon, distance)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 3000),
    st.floats(0.2, 8.0),
    st.floats(-9, -3).map(lambda power: 10**power),
    st.floats(1.0, 60.0),
)
def test_a_calibrated_rate_is_kept_and_hardly_more_is(
    users: int, epsilon: float, delta: float, distance: float
) -> None:
    # Promises so weak that no noise keeps them say nothing about calibration.
    assume(not polya(users, 20.0).covers(epsilon, delta, distance))

    def kept(rate: float) -> bool:
        return polya(users, rate).covers(epsilon, delta, distance)

    pure = epsilon / distance * (1 - 1e-12)
    assert kept(pure)
    rate = last_certified(kept, 20.0, pure, relative=1e-6)
    assert kept(rate)
    assert not kept(rate * 1.001)
    profile = polya(users, rate)
    for steps in {1, math.floor(distance) // 2, math.floor(distance)} - {0}:
        assert profile.delta(epsilon * steps / distance, steps) <= delta * (1 + 1e-8)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 200), st.integers(1, 199), rates)
def test_fewer_honest_polya_shares_mean_a_larger_epsilon(
    users: int, missing: int, rate: float
) -> None:
    assume(missing < users)
    share = Polya(Fraction(1, users), rate)
    everyone, some = (AdditiveNoise(share.summed(count)) for count in (users, users - missing))
    assert some.epsilon(0.0, 1) > everyone.epsilon(0.0, 1) * (1 - 1e-12)
    assert some.epsilon(0.0, 1) > rate
    # ... and shares sized for the honest ones restore it.
    assert AdditiveNoise(Polya(Fraction(1, users - missing), rate).summed(users)).epsilon(
        0.0, 1
    ) <= rate * (1 + 1e-15)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.001, 3.0), st.integers(1, 1000), st.integers(1, 5000))
def test_coarse_noise_hides_every_residue(epsilon: float, granularity: int, distance: int) -> None:
    profile = QuantisedProfile(
        AdditiveNoise(Geometric(coarse_slope(epsilon, granularity))), granularity
    )
    assert profile.pure(distance) <= epsilon * distance * (1 + 1e-13)
    assert profile.pure(1) >= epsilon * (1 - 1e-10)
    # Rounding can only hide: never more than moving to the next cell.
    assert profile.pure(distance) <= profile.coarse.pure(distance // granularity + 1)


@settings(max_examples=25, deadline=None)
@given(st.floats(1.0, 300.0), st.floats(0.2, 4.0), st.floats(1.0, 6.0), fractions)
def test_planar_bounds_are_ordered(
    shape: float, rate: float, radius: float, fraction: float
) -> None:
    axis = polya(shape, rate)
    joint = PlanarNoise(axis)
    split = PerAxisProfile(axis)
    epsilon = fraction * joint.pure(radius)
    delta = joint.delta(epsilon, radius)
    assert axis.delta(epsilon, math.floor(radius)) <= delta * ROUNDING + SMALLEST
    assert delta <= split.delta(epsilon, radius) * ROUNDING + SMALLEST
    if delta > 1e-12:
        law = axis.law_for(delta, radius)
        assert all(
            planar_shift_delta(law, epsilon, i, j) <= delta * ROUNDING
            for i, j in displacements(radius)
        )

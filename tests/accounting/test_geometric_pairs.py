"""One law per displacement bounds every pair of cells, and every data set of a few users."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest
from tests.oracles.multiset_laws import worst_data_set
from tests.tables import check_all

from metricshuffle.accounting.shuffling.blanket_bound import delta_bracket, delta_upper
from metricshuffle.accounting.shuffling.geometric_blanket import (
    ShuffledGeometric,
    _levels,
    displacement_laws,
)
from metricshuffle.errors import InputError
from metricshuffle.randomizers import BoundedGeometric, PlanarGeometric


@pytest.mark.parametrize(
    ("rate", "shift", "users"), [(0.3, 1, 5000), (0.3, 3, 5000), (1.1, 2, 20), (0.05, 8, 25)]
)
def test_a_line_every_pair_is_bounded(rate: float, shift: int, users: int) -> None:
    line = BoundedGeometric(8, rate)
    (law,) = displacement_laws((8,), float(line.exact_rate), (shift,), (shift,))
    for epsilon in (0.0, 0.1 * rate * shift):
        bound = delta_upper(law, users, epsilon)
        exact = max(
            delta_bracket(line.blanket(a, a + shift), users, epsilon, relative=1e-4).lower
            for a in range(9 - shift)
        )
        assert exact <= bound
        assert bound <= (1.5 if epsilon == 0.0 else 10.0) * exact  # and it is not vacuous


def test_a_grid_every_pair_is_bounded() -> None:
    grid = PlanarGeometric(4, 3, 0.6)
    rate = float(grid.axes[0].exact_rate)
    for steps in ((0, 2), (2, 1)):
        laws = displacement_laws((3, 2), rate, steps, steps)
        cells = list(itertools.product(range(4), range(3)))
        pairs = [
            (a, b) for a in cells for b in cells if (abs(a[0] - b[0]), abs(a[1] - b[1])) == steps
        ]
        for epsilon in (0.02, 0.1 * rate * sum(steps)):
            bound = max(delta_upper(law, 5000, epsilon) for law in laws)
            worst = max(
                delta_bracket(
                    grid.blanket(a[1] * 4 + a[0], b[1] * 4 + b[0]), 5000, epsilon, relative=1e-4
                ).lower
                for a, b in pairs
            )
            assert worst <= bound


def test_every_data_set_of_three_people_is_bounded() -> None:
    line = BoundedGeometric(3, 0.8)
    profile = ShuffledGeometric((3,), float(line.exact_rate), 3)
    for distance, epsilon in itertools.product((1, 2, 3), (0.1, 0.5, 1.2)):
        pairs = [(a, b) for a in range(4) for b in range(4) if 0 < abs(a - b) <= distance]
        truth = max(worst_data_set(line.rows(), a, b, 3, epsilon)[0] for a, b in pairs)
        assert truth <= profile.delta(epsilon, distance) + 1e-15


def test_a_block_of_displacements_is_bounded_by_its_law() -> None:
    block = displacement_laws((9,), 0.2, (2,), (5,))
    for shift, epsilon in itertools.product(range(2, 6), (0.01, 0.1, 0.3)):
        single = displacement_laws((9,), 0.2, (shift,), (shift,))
        assert delta_bracket(single[0], 800, epsilon).lower <= delta_upper(block[0], 800, epsilon)


def test_the_profile_is_one() -> None:
    profile = ShuffledGeometric((20, 10), 0.1, 100_000, cell=50.0)
    assert profile.outermost(100.0) == [(2, 0), (1, 1), (0, 2)]
    assert profile.pure(100.0) == pytest.approx(0.2)
    assert profile.pure(10.0) == profile.delta(0.0, 10.0) == 0.0
    deltas = [profile.delta(0.02, distance) for distance in (50.0, 100.0, 150.0)]
    assert deltas == sorted(deltas)
    assert 0.0 < deltas[0] < 1.0
    found = profile.epsilon(1e-6, 100.0)
    assert found < 0.1 * profile.pure(100.0)  # shuffling buys a lot
    assert profile.delta(found, 100.0) <= 1e-6
    assert profile.delta(0.99 * found, 100.0) > 1e-6
    assert profile.covers(found, 1e-6, 100.0, "flat")
    assert not profile.covers(0.98 * found, 1e-6, 100.0, "flat")


def test_a_linear_promise_is_checked_at_every_displacement() -> None:
    profile = ShuffledGeometric((20,), 0.3, 100_000)
    # Shuffled epsilons grow more slowly than the distance here, so a promise that fits far away
    # fails at one step.
    at_three = profile.epsilon(1e-6, 3.0)
    at_one = profile.epsilon(1e-6, 1.0)
    assert at_three < 2.7 * at_one
    assert profile.covers(at_three * 1.01, 1e-6, 3.0, "flat")
    assert not profile.covers(at_three * 1.01, 1e-6, 3.0)
    assert not profile.nearly_covers(at_three * 1.01, 1e-6, 3.0)
    assert profile.covers(3.03 * at_one, 1e-6, 3.0)
    assert not profile.covers(2.97 * at_one, 1e-6, 3.0)


def test_a_linear_promise_on_a_grid() -> None:
    profile = ShuffledGeometric((15, 9), 0.12, 50_000)
    enough = next(
        epsilon
        for epsilon in (0.012, 0.014, 0.016, 0.02, 0.05, 0.1)
        if profile.covers(epsilon, 1e-6, 3.0)
    )
    assert 0.012 < enough < 0.05
    for steps in itertools.product(range(4), repeat=2):
        length = math.hypot(*steps)
        if 0 < length <= 3.0:
            laws = displacement_laws((15, 9), 0.12, steps, steps)
            assert max(delta_upper(law, 50_000, enough * length / 3.0) for law in laws) <= 1e-6


def test_without_delta_only_the_local_epsilon_counts() -> None:
    profile = ShuffledGeometric((15, 9), 0.1, 1000)
    assert profile.covers(0.1 * math.sqrt(2.0) * 3.0 * (1 + 1e-12), 0.0, 3.0)
    assert not profile.covers(0.1 * math.sqrt(2.0) * 3.0 * 0.999, 0.0, 3.0)
    assert profile.epsilon(0.0, 3.0) == profile.pure(3.0)


@check_all(
    "wrong", [{"spans": ()}, {"spans": (0,)}, {"rate": math.nan}, {"cell": 0.0}, {"users": 0}]
)
def test_wrong_parameters_of_pairs_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"\.$"):
        ShuffledGeometric(**{"spans": (5,), "rate": 0.1, "users": 10, **wrong})  # type: ignore[arg-type]


def test_very_little_and_very_much_noise() -> None:
    assert ShuffledGeometric((40,), 30.0, 1000).delta(1.0, 1.0) == pytest.approx(1.0, abs=1e-9)
    assert ShuffledGeometric((40,), 1e-5, 10**9).epsilon(1e-9, 40.0) < 1e-7


def test_ratios_that_no_float_holds() -> None:
    profile = ShuffledGeometric((60,), 20.0, 1000)  # e^1200
    assert profile.delta(0.5, 60.0) == pytest.approx(1.0, abs=1e-6)
    assert profile.pure(60.0) == pytest.approx(1200.0)
    (law,) = displacement_laws((300,), 3.0, (300,), (300,))
    assert math.fsum(law.a) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("rate", [1.05e-9, 1.15e-9, 1e-5, 0.03])
def test_little_noise_per_step_keeps_its_digits(rate: float) -> None:
    _, second = _levels(40, rate, 3, 3)
    tails = []
    with mpmath.workdps(40):
        exact = mpmath.mpf(rate)
        for a in range(19):
            tails.append(mpmath.mpf(0))
            for y in range(
                1, 40
            ):  # (P K_b - K_a)/(P - 1) above level 30: reports inside the line only
                near = abs(y - a)
                far = abs(y - a - 3)
                spread = (
                    mpmath.log1p(mpmath.exp(exact * (near - far)))
                    - mpmath.log1p(mpmath.exp(-3 * exact))
                ) / exact
                if max(y, 40 - y) - near + spread > 30.5:
                    share = mpmath.expm1(-exact * (3 + near - far)) / mpmath.expm1(-3 * exact)
                    tails[-1] += mpmath.tanh(exact / 2) * mpmath.exp(-exact * far) * share
    assert 0.0 < float(max(tails)) <= math.fsum(second[31:])


def test_no_level_of_a_block_is_cut_off() -> None:
    rate = 1e-3
    first, _ = _levels(12, rate, 1, 12)
    # a = 0, b = 1, y = 0: K_a/w = e^(12 rate), and q has the factor (1 + e^-rate)/(1 + e^(-12
    # rate)) on top of it.
    q = 12 + (math.log1p(math.exp(-rate)) - math.log1p(math.exp(-12 * rate))) / rate
    assert q > 17.0
    assert math.fsum(first[17:]) > 0.4

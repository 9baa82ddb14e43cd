"""Sums of noise that is bounded to -c..c."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import ConditionError, InputError
from metricshuffle.noise.bounded_sum import BoundedSum, shared_table, tabulated_sum, truncated_sum
from metricshuffle.noise.polya import Polya


@check_all("shape", [Fraction(1), Fraction(1, 7)])
def test_truncated_shares_are_conditional_masses(shape: Fraction) -> None:
    noise = Polya(shape, 0.4)
    radius = 9
    law = noise.law(-60.0, radius)
    inside = law.mass[: radius + 1] / (2 * law.mass[: radius + 1].sum() - law.mass[0])
    for count in (1, 3):
        plain = np.concatenate([inside[:0:-1], inside])
        power = plain
        for _ in range(count - 1):
            power = np.convolve(power, plain)
        found = truncated_sum(noise, radius, count).law(-60.0)
        assert found.mass == pytest.approx(power[len(power) // 2 :][: found.radius + 1], rel=1e-11)
        assert found.log_concave == (shape == 1)


def test_a_table_is_its_own_law() -> None:
    noise = Polya(Fraction(1, 5), 0.4)
    table = shared_table(noise, 12)
    law = tabulated_sum(noise, 12, 1).law(-60.0)
    assert law.mass == pytest.approx([weight / 2**64 for weight in table.weights], rel=1e-12)
    assert not law.log_concave  # floors are not log-concave, so positive parts are summed
    assert tabulated_sum(noise, 12, 5) is tabulated_sum(noise, 12, 5)


def test_bounded_noise_has_no_pure_epsilon_and_refuses_what_is_not_unimodal() -> None:
    found = truncated_sum(Polya(Fraction(1), 0.5), 4, 3)
    assert found.support == 12
    assert found.pure(0) == 0.0
    assert math.isinf(found.pure(1))
    with pytest.raises(ConditionError, match="never grow"):
        BoundedSum(np.array([0.2, 0.4]), 1e-16, 1, log_concave=False)
    with pytest.raises(InputError, match="at least one draw"):
        BoundedSum(np.array([1.0]), 1e-16, 0, log_concave=False)

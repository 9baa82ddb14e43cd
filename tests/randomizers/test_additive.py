"""Additive randomizer: one report of x + N."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value, symmetric_p_value
from tests.tables import check_all

from metricshuffle.errors import InputError, PlanError
from metricshuffle.noise.polya import Polya
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer, round_randomly
from metricshuffle.randomness import Randomness


def test_rounding_is_exact_and_unbiased() -> None:
    values = np.arange(12, dtype=np.int64)
    drawn = np.stack(
        [round_randomly(values, 5, Randomness.seeded(f"round {i}")) for i in range(2000)]
    )
    assert ((drawn == values // 5) | (drawn == -(-values // 5))).all()
    up = (drawn - values // 5).mean(axis=0)
    assert up == pytest.approx((values % 5) / 5, abs=0.055)
    assert (round_randomly(values, 1, Randomness.seeded(1)) == values).all()


@check_all(("padding", "radius"), [("none", 0), ("clamp", 3), ("bounded", 3)])
def test_reports_have_the_stated_law(padding: str, radius: int) -> None:
    shape = Fraction(1, 3)
    rate = 0.5
    count = 20_000
    one = AdditiveRandomizer(span=4, shape=shape, rate=rate, padding=padding, radius=radius)
    reports = one.reports(np.full(count, 4), Randomness.seeded(padding))
    masses = [float(mass) for mass in Polya(shape, rate).law(-60.0).mass]
    if padding == "none":
        assert symmetric_p_value(reports - 4, masses) > TOO_UNLIKELY
    elif padding == "bounded":
        inside = masses[: radius + 1]
        total = 2 * sum(inside) - inside[0]
        assert (
            symmetric_p_value(reports - radius - 4, [mass / total for mass in inside])
            > TOO_UNLIKELY
        )
    else:
        # 4 + N in -3..7, the ends holding what lies beyond; shifted to 0..10
        whole = np.array([*reversed(masses[1:]), *masses])
        zero = len(masses) - 1 - 4
        law = [whole[: zero - 2].sum(), *whole[zero - 2 : zero + 7], whole[zero + 7 :].sum()]
        assert p_value(reports, law) > TOO_UNLIKELY
    assert one.length == 4 + 2 * radius
    if padding != "none":
        assert reports.min() >= 0
        assert reports.max() <= one.length


def test_a_copy_with_another_rate_has_another_table() -> None:
    first = AdditiveRandomizer(span=4, shape=Fraction(1, 2), rate=0.1, padding="bounded", radius=30)
    first.reports(np.zeros(4, dtype=np.int64), Randomness.seeded(0))
    second = first.model_copy(update={"rate": 4.0})
    assert (
        np.abs(second.reports(np.zeros(4000, dtype=np.int64), Randomness.seeded(1)) - 30).mean()
        < 0.1
    )


def test_the_chance_of_clamping_is_bounded_from_above() -> None:
    one = AdditiveRandomizer(span=4, shape=Fraction(1, 100), rate=0.1, padding="clamp", radius=78)
    assert 9.07696786356e-5 <= one.clamp_probability(100) <= 9.0774e-5  # 1 - (1-q)^n <= nq
    assert AdditiveRandomizer(span=4, shape=Fraction(1), rate=0.1).clamp_probability(100) == 0.0
    assert (
        AdditiveRandomizer(
            span=4, shape=Fraction(1), rate=0.1, padding="clamp", radius=1
        ).clamp_probability(10**6)
        == 1.0
    )
    with pytest.raises(InputError, match="some report is clamped"):
        AdditiveRandomizer(
            span=4, shape=Fraction(1), rate=0.1, padding="clamp", radius=1
        ).half_width(50, 0.95)


def test_errors_of_very_wide_noise_agree_with_the_narrow_formula() -> None:
    """A geometric each for a million people at rate 1e-4: nearly normal, known variance."""
    wide = AdditiveRandomizer(span=4, shape=Fraction(1), rate=1e-4)
    sizes, weights = wide.error_points(10**6)
    deviation = math.sqrt(2 * 10**6) / 1e-4
    assert float(sizes @ weights) == pytest.approx(deviation * math.sqrt(2 / math.pi), rel=1e-5)
    assert math.sqrt(wide.total_variance(10**6)) == pytest.approx(deviation, rel=1e-6)
    assert 1.96 * deviation < wide.half_width(10**6, 0.95) < 1.5 * 1.96 * deviation
    alone = AdditiveRandomizer(span=4, shape=Fraction(1), rate=2.0**-26)
    sizes, weights = alone.error_points(1)
    assert float(sizes @ weights) == pytest.approx(1 / math.sinh(2.0**-26), rel=1e-5)
    many = AdditiveRandomizer(span=4, shape=Fraction(1), rate=0.01)
    sizes, weights = many.error_points(10**9)
    assert float(sizes @ weights) == pytest.approx(math.sqrt(2e9 / 1e-4 * 2 / math.pi), rel=2e-4)


def test_expected_errors_of_rounding_are_those_of_the_sum_of_both() -> None:
    """With negligible noise the error is the rounding's: variance (Q^2 - 1)/6 per person."""
    one = AdditiveRandomizer(span=400, shape=Fraction(1), rate=30.0, granularity=9)
    sizes, weights = one.error_points(50)
    assert float(sizes @ weights) == pytest.approx(math.sqrt(50 * 80 / 6 * 2 / math.pi), rel=1e-6)
    # As many people round as reported, however often noise was added.
    sizes, weights = one.error_points(1, 50)
    assert float(sizes @ weights) == pytest.approx(math.sqrt(50 * 80 / 6 * 2 / math.pi), rel=1e-6)
    assert one.total_variance(1, 50) == pytest.approx(50 * 81 / 4, rel=1e-6)
    assert (
        1.645 * math.sqrt(50 * 81 / 4)
        <= one.half_width(1, 0.9, 50)
        <= 1.645 * math.sqrt(50 * 81 / 4) + 1.5 * one.granularity
    )


def test_wrong_randomizers_are_refused() -> None:
    for wrong in ({"span": 0}, {"granularity": 0}, {"radius": -1}):
        with pytest.raises(InputError, match="randomizer"):
            AdditiveRandomizer(**{"span": 3, "shape": Fraction(1), "rate": 0.5} | wrong)


def test_randomizers_survive_json_exactly() -> None:
    one = AdditiveRandomizer(
        span=3, shape=Fraction(1, 3), rate=0.1, padding="clamp", radius=5, granularity=2
    )
    again = AdditiveRandomizer.model_validate_json(one.model_dump_json())
    assert again == one
    assert again.shape == Fraction(1, 3)
    assert one.top == 2


def test_another_table_than_the_accounted_one_is_refused() -> None:
    bounded = AdditiveRandomizer(
        span=10, shape=Fraction(1, 7), rate=0.5, padding="bounded", radius=40
    )
    assert bounded.pinned().table == bounded.table
    assert bounded.pinned().reports(np.array([3, 4]), Randomness.seeded(1)).shape == (2,)
    other = bounded.pinned().model_copy(update={"table_digest": "0" * 64})
    with pytest.raises(PlanError, match="another noise table"):
        other.reports(np.array([3, 4]), Randomness.seeded(1))

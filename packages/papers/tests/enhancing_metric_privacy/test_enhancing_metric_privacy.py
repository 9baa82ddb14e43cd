"""Published formulas give the published numbers and can never become a guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.oracles.law_moments import mean_absolute
from tests.oracles.sgdl import mass, masses
from tests.tables import check_all

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.flipped_bit_count import count_interval
from metricshuffle.citations import STATEMENTS
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.noise.binomial_sum import bit_count_law
from metricshuffle.noise.polya import Polya
from metricshuffle.planning.candidates.sum_calibration import shuffled_modular
from metricshuffle.planning.candidates.sum_setting import SumSetting
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy import Guarantee, PrivacyProfile, Trust
from metricshuffle.privacy.target import Target
from metricshuffle.queries import Sum
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import FLIP_DENOMINATOR, CountResponse
from metricshuffle.spaces import Integers
from metricshuffle_papers.enhancing_metric_privacy import formulas as paper
from metricshuffle_papers.published import Published
from metricshuffle_papers.reproduction import published_value

EVERY: dict[str, Callable[[], Published]] = {
    "geo_shuffle_epsilon": lambda: paper.geo_shuffle_epsilon(1.0, 100, 1e-4),
    "sgdl_padding": lambda: paper.sgdl_padding(0.1, 100, 1e-4),
    "geo_padding": lambda: paper.geo_padding(1.0, 100, 1e-4),
    "rr_epsilon": lambda: paper.rr_epsilon(2000.0, 1e-4),
    "rr_lambda": lambda: paper.rr_lambda(0.1, 1e-4),
    "rr_colluding_epsilon": lambda: paper.rr_colluding_epsilon(0.2, 1000, 1e-2),
    "sgdl_colluding_epsilon": lambda: paper.sgdl_colluding_epsilon(0.1, 150),
    "rr_bit_variance": lambda: paper.rr_bit_variance(0.3),
    "rr_total_variance": lambda: paper.rr_total_variance(2000.0, 20000),
    "rr_error_bound": lambda: paper.rr_error_bound(2000.0, 20000, 0.05),
    "sgdl_unlike_central": lambda: paper.sgdl_unlike_central(1e-4),
    "geo_unlike_sum": lambda: paper.geo_unlike_sum(1e-4),
    "truncated_delta": lambda: paper.truncated_delta(5e-5, 5e-5),
    "composed_delta": lambda: paper.composed_delta(1e-4),
    "planar_epsilon": lambda: paper.planar_epsilon(0.1),
}


@check_all("name", EVERY)
def test_no_published_number_becomes_a_guarantee(name: str) -> None:
    published = EVERY[name]()
    assert not isinstance(published, PrivacyProfile)
    with pytest.raises(NotCertified, match="got Published"):
        Guarantee.from_profile(
            published,  # type: ignore[arg-type]
            delta=1e-4,
            distance=1.0,
            unit="",
            protects="one person",
            trust=Trust(trusted="shuffler"),
        )
    with pytest.raises(FrozenInstanceError):
        published.claim = 0.0  # type: ignore[misc]


@check_all("name", EVERY)
def test_the_register_says_the_same_verdict(name: str) -> None:
    registered = STATEMENTS[f"metricshuffle_papers.enhancing_metric_privacy.formulas.{name}"]
    published = EVERY[name]()
    assert registered.paper == "Athanasiou25"
    assert registered.label.endswith(f"as published: {published.verdict}")
    assert registered.label.split(",")[0].split(" solved")[0] in published.statement


def test_every_registered_formula_of_the_paper_is_looked_at_here() -> None:
    prefix = "metricshuffle_papers.enhancing_metric_privacy.formulas."
    assert {name.removeprefix(prefix) for name in STATEMENTS if name.startswith(prefix)} == set(
        EVERY
    )


# Theorem 4.1


@check_all(
    ("users", "claims"),
    [
        (50, (0.08726, 0.22019, 0.45114, 0.97882)),
        (100, (0.06650, 0.16792, 0.34796, 0.77980)),
        (1000, (0.02290, 0.05793, 0.12126, 0.28917)),
    ],
)
def test_geo_shuffle_claims(users: int, claims: tuple[float, ...]) -> None:
    for rate, claim in zip((0.2, 0.5, 1.0, 2.0), claims, strict=True):
        assert paper.geo_shuffle_epsilon(rate, users, 1e-4).claim == pytest.approx(
            claim, abs=5.1e-6
        )


@check_all(("rate", "users", "distance"), [(1.0, 100, 1), (0.5, 7, 3), (2.0, 50, 40)])
def test_geo_shuffle_is_the_formula_to_many_digits(rate: float, users: int, distance: int) -> None:
    with mpmath.workdps(40):
        p = mpmath.exp(-mpmath.mpf(rate))
        t = 2 * mpmath.mpf(rate) / mpmath.sqrt(users)
        moment = (1 - p) ** 2 / ((1 - p * mpmath.exp(t)) * (1 - p * mpmath.exp(-t)))
        alpha = -mpmath.log(mpmath.mpf(1e-4) / 4 * moment**-users) / t
        low, high = (
            int(mpmath.floor(-alpha + side * mpmath.mpf(distance) / 2)) for side in (-1, 1)
        )
        ratio = mass(users, rate, low) / mass(users, rate, high)
        expected = float(mpmath.log(max(ratio, 1 / ratio)) / distance)
    assert paper.geo_shuffle_epsilon(rate, users, 1e-4, distance).claim == pytest.approx(
        expected, rel=1e-9
    )


@check_all("users", [1, 2, 3, 4])
def test_geo_shuffle_is_undefined_for_four_users_and_fewer_but_ours_is_not(users: int) -> None:
    with pytest.raises(ConditionError, match="more than 4 users"):
        paper.geo_shuffle_epsilon(1.0, users, 1e-4)
    assert (
        0.0
        < AdditiveNoise(Polya(Fraction(users), 1.0)).epsilon(5e-5, 1)
        <= math.nextafter(1.0, 2.0)
    )


# Theorem 3.1


def test_randomized_response_claims() -> None:
    assert paper.rr_epsilon(2000.0, 1e-4).claim == pytest.approx(0.433916373117, rel=1e-11)
    assert paper.rr_epsilon(10000.0, 1e-4).claim == pytest.approx(0.1884, abs=5e-5)
    assert paper.rr_epsilon(1000.0, 1e-4).claim == pytest.approx(0.6282, abs=5e-5)
    for epsilon, delta in [(0.1, 1e-4), (0.43, 1e-3), (0.01768, 5e-5)]:
        assert paper.rr_epsilon(
            paper.rr_lambda(epsilon, delta).claim, delta
        ).claim == pytest.approx(epsilon, rel=1e-12)
    assert paper.rr_lambda(50.0, 1e-4).claim == 14.0 * math.log(4e4)
    with pytest.raises(ConditionError, match="14 log"):
        paper.rr_epsilon(100.0, 1e-4)


@check_all(
    ("epsilon", "delta", "span", "printed", "right"),
    [
        (0.1, 1e-4, 1000, ("Section 6.2, Figure 4", "fewest users of RR-Shuffle, epsilon=0.1"), 35),
        (
            0.15 / (6.0 * math.sqrt(2.0)),
            5e-5,
            1000,
            ("Section 6.3, Figure 5", "fewest users of RR-Shuffle, epsilon=0.15"),
            1162,
        ),
        (0.2 / (6.0 * math.sqrt(2.0)), 5e-5, 1000, None, 655),
        (0.3 / (7.5 * math.sqrt(2.0)), 5e-5, 1500, None, 304),
        (0.1 / (6.0 * math.sqrt(2.0)), 5e-5, 1000, None, 2609),
    ],
)
def test_the_printed_minimum_of_users_does_not_follow_from_the_theorem(
    epsilon: float, delta: float, span: int, printed: tuple[str, str] | None, right: int
) -> None:
    assert math.ceil(paper.rr_lambda(epsilon, delta).claim / span) == right
    assert (
        paper.rr_epsilon(right * span, delta).claim
        <= epsilon
        < paper.rr_epsilon((right - 1) * span, delta).claim
    )
    if printed is not None:
        assert (
            paper.rr_epsilon(
                published_value("enhancing_metric_privacy", *printed) * span, delta
            ).claim
            > 1.2 * epsilon
        )


# Utility


@check_all(("bits", "random_bit"), [(20_000, 0.1), (50_000, 0.02), (1_000, 0.5)])
@check_all("beta", [0.5, 0.05, 1e-6])
def test_theorem_3_2_holds(bits: int, random_bit: float, beta: float) -> None:
    """The exact probability of a larger error is below beta, for few, half and all ones."""
    bound = paper.rr_error_bound(random_bit * bits, bits, beta).claim
    for ones in (0, bits // 3, bits):
        law = bit_count_law(ones, bits - ones, random_bit / 2.0)
        counts = law.start + np.arange(len(law.mass))
        error = (counts - random_bit * bits / 2.0) / (1.0 - random_bit) - ones
        assert float(law.mass[np.abs(error) > bound].sum()) + law.outside < beta
        low, high = count_interval(
            int(ones * (1.0 - random_bit) + random_bit * bits / 2.0),
            bits,
            random_bit / 2.0,
            1.0 - beta,
        )
        assert 0.5 * (high - low) <= bound, "ours must not be wider than the published one"


def test_theorem_3_2_needs_its_condition() -> None:
    with pytest.raises(ConditionError, match="log"):
        paper.rr_error_bound(5.0, 1000, 1e-3)
    with pytest.raises(ConditionError, match="bits"):
        paper.rr_error_bound(1000.0, 1000, 1e-3)


def test_equation_22_is_right_and_is_ours() -> None:
    flip = 1024 / FLIP_DENOMINATOR * 2**18
    published = paper.rr_total_variance(2 * flip * 350, 350).claim
    assert CountResponse(span=50, flip=flip).total_variance(7) == pytest.approx(
        published, rel=1e-13
    )


@check_all("users", [50, 100, 1000])
@check_all("rate", [0.2, 0.5, 1.0, 2.0])
def test_proposition_2_and_6_hold_with_room_to_spare(users: int, rate: float) -> None:
    """One step of the padding is wasted, and up to one more is rounded up.

    P(|N| >= c) is bounded, not P(|N| > c).
    """
    padding = int(paper.geo_padding(rate, users, 1e-4).claim)
    truth = AdditiveRandomizer(
        span=1000, shape=Fraction(1), rate=rate, padding="clamp", radius=padding
    ).clamp_probability(users)
    by_hand = -math.expm1(
        users * math.log1p(-2.0 * math.exp(-rate * (padding + 1)) / (1.0 + math.exp(-rate)))
    )
    assert truth == pytest.approx(by_hand, rel=1e-4)
    budget = paper.geo_unlike_sum(1e-4).claim
    assert math.exp(-2.0 * rate) * budget * 0.999 < truth <= math.exp(-rate) * budget * 1.001


@check_all(("users", "epsilon"), [(100, 0.1), (50, 0.5), (1000, 0.02)])
def test_proposition_4_holds_for_our_polya_shuffle(users: int, epsilon: float) -> None:
    """Shares of shape 1/n make exactly Geo-Central's noise, without any padding.

    E|Z| = 2p/(1-p^2), E Z^2 = 2p/(1-p)^2.
    """
    query = Sum(domain=Integers(0, 1000))
    setting = Setting(
        query, Target(10.0 * epsilon, 1e-6, 10.0), users, users, transport="aggregator"
    )
    one = shuffled_modular(SumSetting(setting, query), 1)
    rate = one.rate or math.nan
    p = math.exp(-rate)
    assert rate == pytest.approx(epsilon, rel=1e-8)
    assert rate <= epsilon
    assert one.expected_error == pytest.approx(2.0 * p / (1.0 - p * p), rel=1e-9)
    assert (one.standard_error or math.nan) ** 2 == pytest.approx(
        2.0 * p / (1.0 - p) ** 2, rel=1e-9
    )


@check_all("users", [30, 100])
def test_proposition_6_holds_for_our_geometric_shuffle(users: int) -> None:
    query = Sum(domain=Integers(0, 1000))
    setting = Setting(query, Target(1.0, 1e-6, 10.0), users, users, transport="aggregator")
    one = shuffled_modular(SumSetting(setting, query), users)
    total = Polya(Fraction(users), one.rate or math.nan)
    assert one.expected_error == pytest.approx(mean_absolute(total.law(-60.0)), rel=1e-9)
    assert (one.standard_error or math.nan) ** 2 == pytest.approx(total.variance(), rel=1e-9)
    independent = 2.0 * math.fsum(
        z * float(f) for z, f in enumerate(masses(users, one.rate or math.nan, 500))
    )
    assert one.expected_error == pytest.approx(independent, rel=1e-9)


@check_all(
    "wrong",
    [
        lambda: paper.geo_shuffle_epsilon(-1.0, 100, 1e-4),
        lambda: paper.geo_shuffle_epsilon(1.0, 100, 0.0),
        lambda: paper.geo_shuffle_epsilon(1.0, 100, 1e-4, 0),
        lambda: paper.sgdl_padding(math.nan, 100, 1e-4),
        lambda: paper.sgdl_padding(0.1, 0, 1e-4),
        lambda: paper.geo_padding(1.0, 100, math.nan),
        lambda: paper.rr_lambda(0.0, 1e-4),
        lambda: paper.rr_bit_variance(1.5),
        lambda: paper.rr_colluding_epsilon(math.inf, 1000, 1e-2),
    ],
)
def test_wrong_input_is_told(wrong: Callable[[], Published]) -> None:
    with pytest.raises(InputError, match="must"):
        wrong()

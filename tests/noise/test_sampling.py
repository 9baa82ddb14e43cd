"""Exact samplers against closed forms; every chi-squared test detects a slightly wrong law."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value, symmetric_p_value
from tests.oracles.negative_binomial import sample_negative_binomial
from tests.oracles.polya_mpmath import negative_binomial_masses, polya_masses
from tests.tables import check_all

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.noise import _sampling_kernels as kernels
from metricshuffle.noise import samplers
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import (
    rational_rate,
    sample_discrete_laplace,
    sample_geometric,
    sample_polya,
    sample_polya_rows,
)
from metricshuffle.randomness import Randomness

TENTH = rational_rate(0.1)
HALF = Fraction(1, 2)


def laplace_masses(rate: float, radius: int) -> list[float]:
    ratio = math.exp(-rate)
    return [(1 - ratio) / (1 + ratio) * ratio**z for z in range(radius + 1)]


@settings(deadline=None)
@given(st.floats(min_value=2**-32, max_value=2**10))
def test_rational_rate_rounds_down_to_something_that_is_its_own_float(rate: float) -> None:
    rational = rational_rate(rate)
    assert Fraction(float(rational)) == rational <= Fraction(rate)
    assert Fraction(rate) - rational < Fraction(rate) / 2**29
    assert rational.numerator <= samplers.LARGEST_NUMERATOR
    assert rational.denominator <= samplers.LARGEST_DENOMINATOR
    assert samplers._validate_rate(rational) == rational


@check_all("rate", [0.0, -1.0, 2.0**-33, 1025.0, math.inf, math.nan])
def test_rates_outside_the_proved_range_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match="rate"):
        rational_rate(rate)


def test_parameters_that_are_not_exact_are_refused() -> None:
    stream = Randomness.seeded(0)
    wrong_rates: list[Any] = [
        0.1,
        Fraction(2**31 + 1, 2**31),
        Fraction(1, 2**63),
        Fraction(1, 2**33),
        Fraction(1025),
    ]
    for rate in wrong_rates:
        with pytest.raises(InputError, match="rate"):
            sample_discrete_laplace(rate, 1, stream)
    wrong_shapes: list[Any] = [
        0.001,
        Fraction(0),
        Fraction(-1),
        Fraction(1, 2**63),
        Fraction(2**21),
    ]
    for shape in wrong_shapes:
        with pytest.raises(InputError, match="shape"):
            sample_polya(shape, TENTH, 1, stream)
    with pytest.raises(InputError, match="count"):
        sample_polya(HALF, TENTH, -1, stream)


@check_all(("above", "under"), [(1, 3), (1, 1), (2**61 + 1, 2**62), (1, 1000)])
def test_exponential_coins(above: int, under: int) -> None:
    words = Randomness.seeded("coin").words(200_000)
    position = 0
    heads = []
    tosses = 20_000
    for _ in range(tosses):
        head, position = kernels.exp_bernoulli(words, position, np.uint64(above), np.uint64(under))
        assert position >= 0
        heads.append(int(head))
    chance = math.exp(-above / under)
    assert p_value(np.array(heads), [1 - chance, chance], least_expected=5) > TOO_UNLIKELY


def test_a_certain_coin_reads_no_more_than_it_needs() -> None:
    assert kernels.exp_bernoulli(np.full(1, 5, dtype=np.uint64), 0, np.uint64(0), np.uint64(7)) == (
        True,
        1,
    )


@check_all("rate", [TENTH, Fraction(1), Fraction(3, 7), Fraction(5, 2)])
def test_geometric_law(rate: Fraction) -> None:
    draws = sample_geometric(rate, 300_000, Randomness.seeded("geometric"))
    ratio = math.exp(-rate)
    assert p_value(draws, [(1 - ratio) * ratio**k for k in range(200)]) > TOO_UNLIKELY


@check_all("rate", [TENTH, Fraction(1, 10), Fraction(1), Fraction(5, 2)])
def test_discrete_laplace_law_and_a_rate_two_percent_off_is_noticed(rate: Fraction) -> None:
    draws = sample_discrete_laplace(rate, 600_000, Randomness.seeded("laplace"))
    assert symmetric_p_value(draws, laplace_masses(float(rate), 200)) > TOO_UNLIKELY
    for wrong in (0.98, 1.02):
        assert symmetric_p_value(draws, laplace_masses(wrong * float(rate), 200)) < TOO_UNLIKELY


def test_discrete_laplace_at_a_tiny_rate_is_laplace() -> None:
    rate = samplers.SMALLEST_RATE
    draws = sample_discrete_laplace(rate, 100_000, Randomness.seeded("tiny"))
    edges = np.linspace(0.05, 0.95, 19)  # of |Z| / 2^32, exponential to 2^-32 relative
    cells = np.searchsorted(edges, -np.expm1(-np.abs(draws) * float(rate)))
    assert p_value(cells, [0.05] * 20) > TOO_UNLIKELY
    assert p_value((draws > 0).astype(np.int64), [0.5, 0.5]) > TOO_UNLIKELY
    assert (
        p_value(draws & 1, [0.5, 0.5]) > TOO_UNLIKELY
    )  # the low bit is noise too: no float was rounded


def test_discrete_laplace_at_the_largest_rate_is_zero() -> None:
    assert not sample_discrete_laplace(samplers.LARGEST_RATE, 10_000, Randomness.seeded(1)).any()


@check_all("shape", [HALF, Fraction(2, 3), Fraction(1, 50), Fraction(7, 3), Fraction(3)])
def test_negative_binomial_law(shape: Fraction) -> None:
    draws = sample_negative_binomial(shape, TENTH, 200_000, Randomness.seeded("binomial"))
    assert p_value(draws, negative_binomial_masses(shape, TENTH, 200)) > TOO_UNLIKELY


@check_all(
    ("shape", "rate"),
    [(Fraction(1, 3), TENTH), (HALF, Fraction(1)), (Fraction(1), TENTH), (Fraction(9, 4), HALF)],
)
def test_polya_law_and_a_rate_two_percent_off_is_noticed(shape: Fraction, rate: Fraction) -> None:
    draws = sample_polya(shape, rate, 700_000, Randomness.seeded("polya"))
    assert symmetric_p_value(draws, polya_masses(shape, rate, 120)) > TOO_UNLIKELY
    assert (
        symmetric_p_value(draws, polya_masses(shape, rate * Fraction(102, 100), 120)) < TOO_UNLIKELY
    )
    assert (
        symmetric_p_value(draws, polya_masses(shape * Fraction(102, 100), rate, 120)) < TOO_UNLIKELY
    )


@check_all(("users", "rate"), [(1000, TENTH), (100, Fraction(1, 100))])
def test_polya_shares_of_many_users(users: int, rate: Fraction) -> None:
    shape = Fraction(1, users)
    draws = sample_polya(
        shape, rate, 500_000 if rate == TENTH else 60_000, Randomness.seeded("shares")
    )
    assert symmetric_p_value(draws, polya_masses(shape, rate, 60)) > TOO_UNLIKELY
    assert (
        symmetric_p_value(draws, polya_masses(shape * Fraction(125, 100), rate, 60)) < TOO_UNLIKELY
    )


def test_shares_of_all_users_add_up_to_discrete_laplace() -> None:
    shares = sample_polya(Fraction(1, 20), HALF, 20 * 60_000, Randomness.seeded("sum")).reshape(
        20, -1
    )
    assert symmetric_p_value(shares.sum(axis=0), laplace_masses(0.5, 60)) > TOO_UNLIKELY


def tabulated_masses(shape: Fraction, rate: Fraction) -> Any:
    """P(Z = z) from the certified law, up to a tail of e^-30.

    The law has its own tests; sums of products take minutes.
    """
    return np.exp(Polya(shape, float(rate)).law(-30.0).log_mass)


SHAPES = [HALF, Fraction(1, 3), Fraction(9, 10), Fraction(1, 100)]
RATES = [rational_rate(1e-3), rational_rate(0.03), TENTH, Fraction(1), Fraction(5)]


@check_all("rate", RATES)
@check_all("shape", SHAPES)
def test_polya_law_from_tiny_to_large_rates(shape: Fraction, rate: Fraction) -> None:
    """Every value up to 60, and the mass beyond; where the law is wide, also in 20 wide cells."""
    draws = sample_polya_rows(shape, [rate] * 10, 20_000, Randomness.seeded("wide")).ravel()
    masses = tabulated_masses(shape, rate)
    assert symmetric_p_value(draws, masses[:60].tolist()) > TOO_UNLIKELY
    if rate < TENTH:
        width = int(0.4 / rate)
        wide = [2 * sum(masses[1 + width * cell : 1 + width * (cell + 1)]) for cell in range(20)]
        assert p_value((np.abs(draws) - 1) // width + 1, [masses[0], *wide]) > TOO_UNLIKELY


@check_all("rate", RATES)
def test_shares_of_a_hundred_thousand_people(rate: Fraction) -> None:
    """Number of nonzero shares among 3e7 to five sigma; their signs, and sizes by powers of 2."""
    shape = Fraction(1, 10**5)
    many = 30_000_000
    draws = sample_polya_rows(shape, [rate] * 300, many // 300, Randomness.seeded("crowd"))
    others = draws[draws != 0]
    masses = tabulated_masses(shape, rate)
    expected = -many * math.expm1(
        2 * float(shape) * math.log(-math.expm1(-rate))
    )  # 1 - (1-p)^(2/h), but for equal jumps on both sides
    assert abs(others.size - expected) < 5 * math.sqrt(expected)
    assert rate >= 5 or abs(others.size - 1.5 * expected) > 5 * math.sqrt(
        expected
    )  # a wrong chance would be seen
    assert abs(int(np.sum(others > 0)) - others.size / 2) < 5 * math.sqrt(others.size / 4)
    if rate < 5:
        powers = [2**i for i in range(20) if 2**i < masses.size]
        cells = np.add.reduceat(masses[1:] / masses[1:].sum(), [power - 1 for power in powers])
        found = np.searchsorted(powers, np.abs(others), side="right") - 1
        assert p_value(found, cells.tolist(), least_expected=10) > TOO_UNLIKELY


def test_a_million_times_smaller_rate_takes_no_longer_and_has_the_right_law() -> None:
    """NB(1/2) at rate 1e-6 is 1e6 times Gamma(1/2), half the square of a normal variable.

    But for P(0) = 1e-3.
    """
    draws = sample_negative_binomial(
        HALF, rational_rate(1e-6), 20_000, Randomness.seeded("small rate")
    )
    chances = np.linspace(0.05, 0.95, 19)
    cells = np.searchsorted(chances, erf(np.sqrt(draws * 1e-6)))
    assert p_value(cells, [0.05] * 20) > TOO_UNLIKELY
    assert (
        p_value(np.searchsorted(chances, erf(np.sqrt(draws * 1.1e-6))), [0.05] * 20) < TOO_UNLIKELY
    )


def test_rows_have_a_rate_for_each_column() -> None:
    rates = [TENTH, Fraction(2), rational_rate(0.1), Fraction(1), Fraction(2), TENTH]
    draws = sample_polya_rows(HALF, rates, 60_000, Randomness.seeded("columns"))
    assert draws.shape == (60_000, 6)
    assert draws.dtype == np.int64
    for column, rate in enumerate(rates):
        assert symmetric_p_value(draws[:, column], polya_masses(HALF, rate, 120)) > TOO_UNLIKELY
        for other in range(column):  # independent of each other, and not one a copy of the other
            assert abs(np.corrcoef(draws[:, column], draws[:, other])[0, 1]) < 5 / math.sqrt(60_000)
    whole = sample_polya_rows(
        Fraction(9, 4), [HALF, Fraction(1), HALF], 60_000, Randomness.seeded("whole columns")
    )
    for column, rate in enumerate([HALF, Fraction(1), HALF]):
        assert (
            symmetric_p_value(whole[:, column], polya_masses(Fraction(9, 4), rate, 120))
            > TOO_UNLIKELY
        )


def test_rows_of_nothing_and_what_is_refused() -> None:
    stream = Randomness.seeded("no rows")
    for shape in (HALF, Fraction(1), Fraction(5, 2)):
        assert sample_polya_rows(shape, [], 7, stream).shape == (7, 0)
        assert sample_polya_rows(shape, [HALF, TENTH], 0, stream).shape == (0, 2)
    wrong: list[list[Any]] = [[0.1], [HALF, 0.1], [HALF, Fraction(1, 2**33), HALF]]
    for rates in wrong:
        with pytest.raises(InputError, match="rate"):
            sample_polya_rows(HALF, rates, 1, stream)


def test_oracle_agrees_with_known_values() -> None:
    masses = polya_masses(Fraction(1, 100), Fraction(1, 10), 1)
    assert masses == pytest.approx([0.954152992504, 0.00868719913624], rel=1e-11)


def _laplace(randomness: Randomness, buffer_words: int) -> Any:
    out = np.empty(3000, dtype=np.int64)

    def fill(words: Any, state: Any) -> int:
        return int(kernels.fill_discrete_laplace(words, np.uint64(1), np.uint64(10), out, state))

    samplers._driven(fill, out.size, randomness, buffer_words)
    return out


def _share(users: int, rate: Fraction) -> Callable[[Randomness, int], Any]:
    def draw(randomness: Randomness, buffer_words: int) -> Any:
        out = np.zeros((1500, 3), dtype=np.int64)
        samplers._add_jumps(
            out,
            np.array([2, 0]),
            Fraction(1, users),
            rate,
            2,
            randomness,
            buffer_words=buffer_words,
        )
        assert not out[:, 1].any()
        return out

    return draw


@check_all(
    "draw",
    [_laplace, _share(3, Fraction(1, 30)), _share(100, Fraction(1, 1000)), _share(2, Fraction(3))],
)
def test_draws_are_a_function_of_the_stream_whatever_the_buffer(draw: Any) -> None:
    # This is what makes refilling unbiased: with one word at a time nearly every step is
    # interrupted.
    reference = draw(Randomness.seeded("dry"), 2**19)
    assert np.count_nonzero(reference) > 20
    for buffer_words in (1, 2, 13, 100, 8192):
        np.testing.assert_array_equal(draw(Randomness.seeded("dry"), buffer_words), reference)


def test_a_broken_source_is_an_error_not_a_draw() -> None:
    class Stuck(Randomness):
        def fill(self, buffer: Any) -> None:
            buffer[:] = 0  # every coin comes up heads for ever

    with pytest.raises(NotCertified, match="broken"):
        sample_discrete_laplace(TENTH, 1, Stuck.seeded(0))


def test_no_draws_and_the_smallest_and_largest_shapes() -> None:
    stream = Randomness.seeded("edges")
    for shape in (Fraction(1, 3), Fraction(1), Fraction(5, 2)):
        assert sample_polya(shape, TENTH, 0, stream).shape == (0,)
    assert sample_discrete_laplace(TENTH, 0, stream).dtype == np.int64
    assert (
        np.count_nonzero(sample_polya(Fraction(1, 10**9), TENTH, 20_000, stream)) <= 1
    )  # expected 1e-4
    many = sample_polya(Fraction(10**9 - 1, 10**9), TENTH, 200_000, stream)
    assert symmetric_p_value(many, laplace_masses(float(TENTH), 200)) > TOO_UNLIKELY
    large = sample_polya(Fraction(5000), Fraction(1), 200, stream)
    ratio = math.exp(-1)
    assert 0.6 < large.var() / (2 * 5000 * ratio / (1 - ratio) ** 2) < 1.5


def test_seeded_draws_are_reproducible() -> None:
    first, second = (sample_polya(HALF, TENTH, 50, Randomness.seeded(9)).tolist() for _ in range(2))
    assert first == second
    assert first != sample_polya(HALF, TENTH, 50, Randomness.seeded(10)).tolist()

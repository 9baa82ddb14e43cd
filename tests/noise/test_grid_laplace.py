"""Laplace sums rounded after addition: exact law, sampler paths, and rounding first."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError
from metricshuffle.noise import grid_laplace
from metricshuffle.noise.grid_laplace import GridLaplace, Ratios, _refine_comparison
from metricshuffle.randomness import Randomness

COARSE = GridLaplace(Fraction(3, 4), Fraction(1, 4))
THIRDS = GridLaplace(Fraction(1, 2), Fraction(1, 3))


def laplace_cdf(x: float) -> float:
    return 0.5 * math.exp(x) if x < 0 else 1 - 0.5 * math.exp(-x)


@check_all("noise", [COARSE, THIRDS])
@check_all(
    "value", [0.0, 0.1, -0.1, 0.25, -0.25, 2.6, -1e-300, 1e-30, Fraction(1, 3), Fraction(-5, 7)]
)
def test_the_law_is_that_of_the_rounded_sum(noise: GridLaplace, value: float) -> None:
    scale = float(noise.scale)
    cell = float(noise.cell)
    first = math.floor(Fraction(value) / noise.cell) - 40
    masses = [noise.mass(value, i) for i in range(first, first + 81)]
    for i, mass in zip(range(first, first + 81), masses, strict=True):
        assert mass == pytest.approx(
            laplace_cdf(((i + 1) * cell - value) / scale) - laplace_cdf((i * cell - value) / scale),
            abs=1e-14,
        )
    assert sum(masses) == pytest.approx(1.0, abs=1e-8)
    values: Any = [value] * 6_000 if isinstance(value, Fraction) else np.full(6_000, value)
    draws = noise.sample(values, Randomness.seeded(f"{value}"))
    assert p_value(draws, masses, lowest=first) > TOO_UNLIKELY
    shifted = [*masses[1:], 0.0]
    assert p_value(draws, shifted, lowest=first) < TOO_UNLIKELY


def test_every_number_gets_its_own_noise() -> None:
    values = np.linspace(-3.0, 3.0, 50_000)
    noise = GridLaplace.at_least(0.7)
    released = noise.centres(noise.sample(values, Randomness.seeded(3)))
    # the probability integral transform of (released - value) is uniform up to half a cell
    levels = np.array([laplace_cdf(x) for x in (released - values) / 0.7])
    assert p_value(np.floor(levels * 50).astype(int), [1 / 50] * 50) > TOO_UNLIKELY
    assert np.std(released - values) == pytest.approx(math.sqrt(noise.variance), rel=0.03)


@settings(deadline=None, max_examples=200)
@given(st.floats(min_value=1e-280, max_value=1e280))
def test_the_scale_is_never_smaller_than_asked_for(scale: float) -> None:
    noise = GridLaplace.at_least(scale)
    assert Fraction(scale) <= noise.scale <= Fraction(scale) * (1 + Fraction(1, 2**28))
    assert 2**-11 < noise.rate <= 2**-9


def test_the_exact_coin_alone_has_the_right_law() -> None:
    """No digit is known beforehand: every coin is decided by the refinement."""

    def coins(way: float, count: int) -> int:
        stream = Randomness.seeded(5)
        return sum(_refine_comparison(Fraction(way), 0, 0, stream) for _ in range(count))

    for way in (0.0, 0.3, 2.0):
        heads = coins(way, 1500)
        chance = math.exp(-way)
        assert abs(heads - 1500 * chance) <= 5.0 * math.sqrt(1500 * chance * (1 - chance)) + 1e-9


def test_a_refined_coin_agrees_with_the_number_it_refines() -> None:
    stream = Randomness.seeded(1)
    edge = int(math.exp(-0.5) * 2**30)
    assert _refine_comparison(Fraction(1, 2), edge - 1, 30, stream)
    assert not _refine_comparison(Fraction(1, 2), edge + 1, 30, stream)
    inside = [_refine_comparison(Fraction(1, 2), edge, 30, stream) for _ in range(400)]
    assert np.mean(inside) == pytest.approx(math.exp(-0.5) * 2**30 - edge, abs=0.12)


def test_the_enclosure_is_wide_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word within 2^-45 of the edge goes to the refinement; one farther away does not."""
    asked: list[Any] = []

    def refined(*given: Any) -> bool:
        asked.append(given)
        return True

    monkeypatch.setattr(grid_laplace, "_refine_comparison", refined)
    way = np.full(4, 0.37)
    edge = int(math.exp(-0.37 * 0.75) * 2**64)
    words = np.array([edge, edge + 2**18, edge - 2**18, edge + 2**24], dtype=np.uint64)
    heads = COARSE._coins(way, words, lambda n: Fraction(0.37), Randomness.seeded(0))
    assert len(asked) == 3
    assert not heads[3]


def test_rounding_first_costs_a_whole_cell_and_rounding_last_nothing() -> None:
    """Two users 1e-9 apart across an edge: 0.025 against 2.5e-8 (alpha = 25, cells of 1e-3)."""
    rate = 25.0
    cell = Fraction(1, 1000)
    apart = 1e-9
    left = 0.0005 - apart / 2
    right = 0.0005 + apart / 2
    step = rate * float(cell)

    def rounded_first(value: float, z: int) -> float:
        return math.tanh(step / 2) * math.exp(-step * abs(z - round(value / float(cell))))

    first = max(
        abs(math.log(rounded_first(left, z) / rounded_first(right, z))) for z in range(-50, 50)
    )
    assert first == pytest.approx(0.025, rel=1e-12)
    noise = GridLaplace.at_least(1 / rate, cell)
    for edge in (0.0005, 0.001):  # in the middle of a cell, and on both sides of an edge of ours
        p, q = (
            [noise.mass(Fraction(edge) + side * Fraction(apart) / 2, z) for z in range(-50, 50)]
            for side in (-1, 1)
        )
        last = max(abs(math.log(a / b)) for a, b in zip(p, q, strict=True))
        assert 2e-8 < last <= rate * apart * (1 + 1e-6)


def test_a_million_numbers() -> None:
    noise = GridLaplace.at_least(0.01)
    values = np.linspace(0, 1, 10**6)
    cells = noise.sample(values, Randomness.seeded(9))
    assert abs(np.mean(noise.centres(cells) - values)) < 6 * math.sqrt(noise.variance / 10**6)


@check_all("power", [-3, 0, 4, 31, 45, 58])
def test_ratios_are_split_as_their_fractions_are(power: int) -> None:
    rng = np.random.default_rng(2)
    ratios = Ratios(rng.integers(-(2**34), 2**34, 300), rng.integers(1, 1000, 300), power)
    for noise in (
        GridLaplace(Fraction(1, 2), Fraction(1, 2**12)),
        THIRDS,
        GridLaplace(Fraction(1, 2), Fraction(1, 2**40)),
    ):
        fractions = [ratios.fraction(n) for n in range(len(ratios))]
        if max(map(abs, fractions)) / noise.cell >= 2**51:
            with pytest.raises(DomainError, match="coarser"):
                noise.sample(ratios, Randomness.seeded(1))
            continue
        whole, part, negative, exactly = noise._split(ratios)
        assert [
            -w - e if n else w + e
            for w, n, e in zip(whole.tolist(), negative, map(exactly, range(300)), strict=True)
        ] == [q / noise.cell for q in fractions]
        assert part == pytest.approx([float(exactly(n)) for n in range(300)], abs=2**-52)
        assert (
            noise.sample(ratios, Randomness.seeded(1))
            == noise.sample(fractions, Randomness.seeded(1))
        ).all()


def test_wrong_ratios_are_refused() -> None:
    ones = np.ones(2, dtype=np.int64)
    for above, under in (
        (ones, 0 * ones),
        (ones.astype(float), ones),
        (ones, ones[:1]),
        (ones << 62, ones),
        (-(ones << 63), ones),
    ):
        with pytest.raises(InputError, match="ratios"):
            Ratios(above, under)


def test_the_average_of_many_users_errs_as_little_as_it_should() -> None:
    """E|average of 1e5 Laplace(0.04)| by the central limit theorem: 1.427e-4 and not 1.26e-4."""
    noise = GridLaplace.at_least(0.04)
    assert math.sqrt(2 / math.pi * noise.variance / 1e5) == pytest.approx(
        1.42729929292e-4, rel=1e-7
    )
    stream = Randomness.seeded(24)
    errors = [
        abs(np.mean(noise.centres(noise.sample(np.full(1000, 0.3), stream))) - 0.3)
        for _ in range(300)
    ]
    assert np.mean(errors) == pytest.approx(1.42729929292e-3, rel=0.2)


def test_centres_are_exact() -> None:
    cells = np.array([-(2**50), -1, 0, 2**50])
    for noise in (COARSE, THIRDS):
        assert [Fraction(x) for x in COARSE.centres(cells)] == [
            (2 * int(i) + 1) * COARSE.cell / 2 for i in cells
        ]
        assert noise.centres(cells) == pytest.approx(
            [float((i + 0.5) * noise.cell) for i in cells.tolist()], rel=1e-15
        )


@check_all(
    "values", [[math.nan], [math.inf], [1e30], [0.0, "x"], [2**60 + 1], [None], [Fraction(10**20)]]
)
@check_all("noise", [COARSE, THIRDS])
def test_values_that_do_not_fit_are_refused(values: Any, noise: GridLaplace) -> None:
    with pytest.raises(DomainError, match=r"value"):
        noise.sample(values, Randomness.seeded(0))


def test_wrong_parameters_are_refused() -> None:
    stream = Randomness.seeded(0)
    with pytest.raises(InputError, match="one-dimensional"):
        COARSE.sample(np.zeros((2, 2)), stream)
    wrong: list[Any] = [
        (Fraction(1, 3), Fraction(1)),
        (0.5, Fraction(1)),
        (Fraction(1, 2), 0.25),
        (Fraction(1, 2), Fraction(0)),
    ]
    for rate, cell in wrong:
        with pytest.raises(InputError, match=r"rate|cell"):
            GridLaplace(rate, cell)
    for scale in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="scale"):
            GridLaplace.at_least(scale)


def test_texts_and_truth_values_are_no_numbers() -> None:
    wrong: list[Any] = [
        np.array(["1"], dtype=object),
        np.array([True], dtype=object),
        [Fraction(1, 3), "1/3"],
        np.array([True]),
    ]
    for noise in (COARSE, THIRDS):
        for values in wrong:
            with pytest.raises(DomainError, match="must be"):
                noise.sample(values, Randomness.seeded(1))
    if np.dtype(np.longdouble).itemsize > 8:
        with pytest.raises(DomainError, match="must be"):
            COARSE.sample(
                np.array([0.1], dtype=np.longdouble), Randomness.seeded(1)
            )  # its last digits would be rounded away

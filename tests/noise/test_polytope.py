"""Polytopes: norm, sampler, moments, frames, and the exact loss of the cells that leave."""

from __future__ import annotations

import itertools
import math
import pickle
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import gammainc
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.noise.k_norm import BallNoise, DecimalDraws, high_precision
from metricshuffle.noise.polytope import LARGEST_COEFFICIENT, Polytope
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.answer_noise import KNormNoise
from metricshuffle.randomness import Randomness
from metricshuffle.simulation.fast_draws import simulated_noise, uniform_points

HEXAGON = Polytope(((4, 1), (1, 5), (3, -4)))
THIN = Polytope(((1000, -999), (999, -1000), (3, 4)))
GENERATOR = np.random.default_rng(7)


def box(size: int) -> Polytope:
    return Polytope(tuple(tuple(int(i == j) for j in range(size)) for i in range(size)))


def cross(size: int) -> Polytope:
    """The ball of the sum norm."""
    return Polytope(tuple((1, *signs) for signs in itertools.product((1, -1), repeat=size - 1)))


def random_polytope(size: int, facets: int) -> Polytope:
    rows = np.rint(np.random.default_rng(size).normal(size=(facets, size)) * 2.0**20)
    return Polytope(tuple(tuple(int(entry) for entry in row) for row in rows))


def norms(polytope: Polytope, z: Floats) -> Floats:
    return np.asarray(np.abs(z @ polytope.matrix.T).max(axis=-1) / polytope.largest)


@check_all("polytope", [HEXAGON, THIN, box(3), cross(4), random_polytope(5, 30), cross(8)])
def test_the_frame_covers_the_polytope_and_is_filled_by_it(polytope: Polytope) -> None:
    """Exact: facets in terms of the frame have no coefficient above 1.01."""
    scaled, others = polytope.frame
    assert all(abs(entry) <= LARGEST_COEFFICIENT for row in others for entry in row)
    count = polytope.dimension
    assert len(others) == len(polytope.facets) - count
    # z = scaled y gives every facet an exact combination of the y: those of the frame are unit rows
    images = [
        tuple(
            sum(entry * scaled[j][k] for j, entry in enumerate(row)) / polytope.largest
            for k in range(count)
        )
        for row in polytope.facets
    ]
    units = {tuple(Fraction(int(i == k)) for i in range(count)) for k in range(count)}
    assert units <= set(images)
    assert set(others) | units == set(images)
    points = uniform_points(polytope, 200, GENERATOR)
    assert (norms(polytope, points) <= 1.0 + 1e-9).all()
    assert (np.abs(points) <= [float(width) * (1.0 + 1e-9) for width in polytope.widths]).all()


@check_all("polytope", [HEXAGON, THIN, cross(3), random_polytope(4, 12)])
def test_the_norm_of_the_noise_is_gamma_and_the_point_uniform(polytope: Polytope) -> None:
    count = polytope.dimension
    noise = BallNoise(count, Fraction(1), Fraction(1, 2**20), polytope.ball)
    stream = Randomness.seeded("polytope")
    z = np.array([noise.centres(noise.sample([0.0] * count, stream)) for _ in range(600)])
    levels = gammainc(count, norms(polytope, z))
    assert p_value(np.floor(levels * 12).astype(int), [1 / 12] * 12) > TOO_UNLIKELY
    # Shares of the facets that are met first: proportional to the volume of their cones.
    drawn = uniform_points(polytope, 200_000, np.random.default_rng(1))
    facets = len(polytope.facets)
    masses = [
        np.bincount(np.abs(part @ polytope.matrix.T).argmax(axis=1), minlength=facets)
        for part in (drawn, z)
    ]
    expected = (masses[0] + 1.0) / (masses[0] + 1.0).sum()
    codes = np.repeat(np.arange(facets), masses[1])
    assert p_value(codes, expected.tolist()) > TOO_UNLIKELY
    assert noise.variation < 2.0**-104


@check_all("size", [2, 3, 5, 8])
def test_moments_of_boxes_are_exact_and_of_cross_polytopes_close(size: int) -> None:
    np.testing.assert_allclose(box(size).squares, 1.0 / 3.0, rtol=1e-12)
    np.testing.assert_allclose(box(size).mean_sizes, 0.5, rtol=1e-4)
    body = cross(size)
    exact = 2.0 / ((size + 1.0) * (size + 2.0))
    assert (body.squares >= exact * (1.0 - 1e-9)).all()  # rounded up
    assert (body.squares <= exact * (1.07 if size == 8 else 1.025)).all()
    np.testing.assert_allclose(body.mean_sizes, 1.0 / (size + 1.0), rtol=0.01)


def test_a_parallelepiped_has_the_moments_of_its_sides() -> None:
    """z = B^-1 y R with y uniform in the cube."""
    rows = ((3, 1), (1, 2))
    inverse = np.linalg.inv(np.array(rows, dtype=float)) * 3.0
    np.testing.assert_allclose(Polytope(rows).squares, (inverse**2).sum(axis=1) / 3.0, rtol=1e-12)


@check_all(("draws", "seed"), [(1, 1), (5, 2)])
def test_noise_is_as_large_as_it_says(draws: int, seed: int) -> None:
    noise = KNormNoise(1.7, HEXAGON.facets)
    generator = np.random.default_rng(seed)
    drawn = np.array([simulated_noise(noise, draws, generator) for _ in range(4_000)])
    np.testing.assert_allclose((drawn**2).mean(axis=0), noise.variances * draws, rtol=0.1)
    assert noise.mean_size(draws) == pytest.approx(np.abs(drawn).mean(), rel=0.05)
    stream = Randomness.seeded("hexagon")
    cells = np.array([noise.on([Fraction(3), Fraction(-1, 3)], stream) for _ in range(1_000)])
    middles = noise.middles(cells, 1)
    deviations = np.sqrt(noise.variances)
    assert np.abs(middles.mean(axis=0) - (3.0, -1.0 / 3.0)).max() < 5.0 * deviations.max() / 31.0
    np.testing.assert_allclose(middles.std(axis=0), deviations, rtol=0.15)


SIDE = 40
REACH = 7


def cell_law(polytope: Polytope, centre: Floats) -> Floats:
    """Probability of each cell of side 1 in a square, for noise of scale 1 around a centre.

    Midpoints of 40 by 40 parts of a cell; the density is e^(-norm)/(D! volume).
    """
    parts = (np.arange(2 * REACH * SIDE) + 0.5) / SIDE - REACH
    x, y = np.meshgrid(parts, parts, indexing="ij")
    sizes = norms(polytope, np.stack([x - centre[0], y - centre[1]], axis=-1))
    corners = _corners(polytope)
    area = 0.5 * abs(
        float(
            np.sum(
                corners[:, 0] * np.roll(corners[:, 1], -1)
                - corners[:, 1] * np.roll(corners[:, 0], -1)
            )
        )
    )
    density = np.exp(-sizes) / (2.0 * area) / SIDE**2
    return np.asarray(density.reshape(2 * REACH, SIDE, 2 * REACH, SIDE).sum(axis=(1, 3)))


def _corners(polytope: Polytope) -> Floats:
    """Corners of a polygon in their order: the points where two sides meet, inside all others."""
    rows = np.concatenate([polytope.matrix, -polytope.matrix]) / polytope.largest
    meets = [
        np.linalg.solve(np.array([a, b]), np.ones(2))
        for a, b in itertools.combinations(rows, 2)
        if abs(a[0] * b[1] - a[1] * b[0]) > 1e-12
    ]
    inside = np.array([z for z in meets if norms(polytope, z) <= 1.0 + 1e-9])
    return inside[np.argsort(np.arctan2(inside[:, 1], inside[:, 0]))]


@check_all("polytope", [HEXAGON, box(2), Polytope(((2, 1), (1, 2), (5, -5)))])
def test_no_cell_tells_two_answers_apart_by_more_than_their_distance(polytope: Polytope) -> None:
    """Brute force in two dimensions: every cell, all pairs of 9 answers, both directions."""
    answers = [np.array([a, b]) / 7.0 for a in (-3, 0, 2) for b in (-2, 1, 5)]
    laws = [cell_law(polytope, answer) for answer in answers]
    largest = 0.0
    for (a, one), (b, two) in itertools.permutations(zip(answers, laws, strict=True), 2):
        loss = float(np.log(one / two).max())
        promise = float(norms(polytope, a - b))
        assert loss <= promise * (1.0 + 1e-9)
        largest = max(largest, loss / promise)
    assert largest > 0.99  # far cells attain it: no smaller promise is true


def test_the_cells_that_leave_have_this_law() -> None:
    noise = KNormNoise(1.0, HEXAGON.facets, cell=1.0)
    answer = [Fraction(2, 7), Fraction(-5, 7)]
    law = cell_law(HEXAGON, np.array([2.0 / 7.0, -5.0 / 7.0]))
    stream = Randomness.seeded("cells")
    cells = np.array([noise.on(answer, stream) for _ in range(3_000)])
    inside = (np.abs(cells + 0.5) < REACH).all(axis=1)
    codes = (cells[inside, 0] + REACH) * 2 * REACH + cells[inside, 1] + REACH
    assert law.sum() == pytest.approx(1.0, abs=0.02)
    assert p_value(codes, (law / law.sum()).ravel().tolist()) > TOO_UNLIKELY
    other = cell_law(HEXAGON, np.array([0.7, -5.0 / 7.0]))
    assert p_value(codes, (other / other.sum()).ravel().tolist()) < TOO_UNLIKELY


def test_a_pickled_ball_draws_the_same_points() -> None:
    """Plans cross processes, and so does the noise that they hold."""
    drawn = [
        ball.uniform(DecimalDraws(Randomness.seeded(9)))
        for ball in (HEXAGON.ball, pickle.loads(pickle.dumps(HEXAGON.ball)))  # noqa: S301 - own
    ]
    assert drawn[0] == drawn[1]


def test_the_sampler_agrees_with_one_of_twice_the_digits() -> None:
    for polytope in (HEXAGON, THIN, random_polytope(8, 40)):
        drawn = []
        for digits in (120, 240):
            context = high_precision()
            context.prec = digits
            with localcontext(context):
                body = Polytope(polytope.facets)
                drawn.append(body.ball.uniform(DecimalDraws(Randomness.seeded(8))))
        for a, b in zip(*drawn, strict=True):
            assert abs(a - b) < Decimal(2) ** -330


def test_wrong_facets_are_refused() -> None:
    with pytest.raises(InputError, match="span all 2"):
        Polytope(((1, 2), (2, 4)))
    with pytest.raises(InputError, match="span 0"):
        Polytope(((0, 0), (0, 0)))
    for facets in ((), ((1, 2), (1,)), ((2**53, 1), (1, 0)), tuple([(1,) * 9] * 9)):
        with pytest.raises(InputError, match="polytope"):
            Polytope(facets)
    with pytest.raises(InputError, match="2 numbers each"):
        KNormNoise(1.0, ((1, 0, 0), (0, 1, 0), (0, 0, 1)), coordinates=2)
    with pytest.raises(InputError, match="span"):
        KNormNoise(1.0, ((1, 2), (2, 4)))


def test_acceptance_is_at_least_that_of_a_cross_polytope() -> None:
    """0.9/D! of the cube of the frame, for the worst of many random polytopes."""
    for size in (2, 3, 5):
        body = random_polytope(size, 40)
        others = np.array([[float(entry) for entry in row] for row in body.frame[1]])
        y = GENERATOR.uniform(-1.0, 1.0, size=(20_000, size))
        accepted = (np.abs(y @ others.T) <= 1.0).all(axis=1).mean()
        assert accepted >= 0.9 / math.factorial(size)

"""Two coordinates: joint sweep against double sums, the per-axis bound, every lattice point."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.oracles import sgdl
from tests.tables import check_all

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.planar_noise import (
    JOINT_RADIUS,
    PerAxisProfile,
    PlanarNoise,
    displacements,
    outermost,
    planar_shift_delta,
)
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.noise.polya import Geometric, Polya

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "sums.json").read_text(encoding="utf-8")
)


def polya(shape: float, rate: float) -> AdditiveNoise:
    return AdditiveNoise(Polya(Fraction(shape), rate))


@check_all("row", GOLDEN["planar"])
def test_golden_planar_deltas(row: dict[str, Any]) -> None:
    law = polya(1000, 0.4026).law_for(1e-9, 6)
    first, second = row["move"]
    found = planar_shift_delta(law, 0.025 * math.hypot(first, second), first, second)
    assert found == pytest.approx(row["value"], rel=1.1e-4)
    assert found == planar_shift_delta(law, 0.025 * math.hypot(first, second), second, first)


def test_the_joint_rate_of_the_printed_example_is_kept_and_hardly_more_is() -> None:
    assert PlanarNoise(polya(1000, 0.4026)).covers(0.15, 5e-5, 6)
    assert not PlanarNoise(polya(1000, 0.4031)).covers(0.15, 5e-5, 6)
    # Accounted one axis at a time the noise has to be much larger.
    assert not PerAxisProfile(polya(1000, 0.4026)).covers(0.15, 5e-5, 6)
    assert PerAxisProfile(polya(1000, 0.2769)).covers(0.15, 5e-5, 6)
    assert not PerAxisProfile(polya(1000, 0.2771)).covers(0.15, 5e-5, 6)


@pytest.mark.parametrize(
    ("shape", "rate", "radius"), [(1.0, 1.2, 34), (3.5, 2.0, 26), (40.0, 3.0, 30)]
)
def test_joint_delta_against_the_double_sum(shape: float, rate: float, radius: int) -> None:
    law = sgdl.masses(shape, rate, radius)
    axis = polya(shape, rate)
    for first, second, fraction in [(1, 0, 0.5), (2, 2, 0.0), (3, 1, 0.3), (2, 3, 0.9)]:
        epsilon = fraction * (axis.pure(first) + axis.pure(second))
        truth = sgdl.planar_delta(law, epsilon, first, second)
        found = planar_shift_delta(axis.law_for(1e-12, 3), epsilon, first, second)
        assert truth <= found <= truth * (1 + 1e-9) + 1e-12
        length = math.hypot(first, second) * (1 + 1e-12)
        assert truth <= PlanarNoise(axis).delta(epsilon, length)
        assert truth <= PerAxisProfile(axis).delta(epsilon, length)


def test_joint_delta_of_a_move_along_one_axis_is_the_one_dimensional_delta() -> None:
    axis = polya(7, 0.6)
    for epsilon in (0.0, 0.2, 1.0):
        assert planar_shift_delta(axis.law_for(1e-12, 4), epsilon, 4, 0) == pytest.approx(
            axis.delta(epsilon, 4), rel=1e-9
        )


@check_all("radius", [0.5, 1.0, 1.42, 5.0, 7.3, 50.0])
def test_displacements_and_outermost_points(radius: float) -> None:
    reach = math.floor(radius)
    inside = {
        (i, j)
        for i in range(reach + 1)
        for j in range(reach + 1)
        if 0 < i * i + j * j <= radius * radius
    }
    assert {(i, j) for i, j in inside if j <= i} == set(displacements(radius))
    kept = outermost(radius)
    assert all(any(a >= max(i, j) and b >= min(i, j) for a, b in kept) for i, j in inside)
    assert not any(
        p != q and p[0] >= q[0] and p[1] >= q[1] for p, q in itertools.product(kept, repeat=2)
    )


def test_pure_planar_epsilon_is_the_worst_lattice_point() -> None:
    for noise in (Geometric(0.3), Polya(Fraction(9, 10), 0.3), Polya(1 - Fraction(1, 10**10), 1.0)):
        axis = AdditiveNoise(noise)
        for radius in (1.0, 2.0, 5.0, 7.5, 60.0):
            points = [
                (i, math.isqrt(int(radius * radius) - i * i)) for i in range(math.floor(radius) + 1)
            ]
            truth = max(axis.pure(i) + axis.pure(j) for i, j in points)
            found = PlanarNoise(axis).pure(radius)
            assert truth <= found <= truth * 1.02
            assert found <= PerAxisProfile(axis).pure(radius) * (1 + 1e-12)
    assert PlanarNoise(polya(2, 0.3)).pure(0.9) == 0.0


def test_a_linear_promise_is_checked_at_every_lattice_point() -> None:
    axis = polya(60, 0.8)
    law = axis.law_for(1e-6, 5)
    for epsilon in (1.6, 1.7, 1.75, 1.8, 1.9):
        worst = max(
            planar_shift_delta(law, epsilon * math.hypot(i, j) / 5.5, i, j)
            for i, j in displacements(5.5)
        )
        for delta in (worst * (1 - 1e-9), worst * (1 + 1e-9)):
            assert PlanarNoise(axis).covers(epsilon, delta, 5.5) == (delta > worst)


@check_all("delta", [0.0, 1e-9])
def test_the_worst_direction_may_be_far_inside(delta: float) -> None:
    """Within 2.5 cells (2, 1) dominates every move; |i| + |j| per length is largest on (1, 1)."""
    assert outermost(2.5) == ((2, 1),)
    noise = PlanarNoise(AdditiveNoise(Geometric(0.3)))
    assert not noise.covers(0.3 * 2.5 * 1.38, delta, 2.5)
    assert noise.covers(0.3 * 2.5 * 1.4143, delta, 2.5)


def test_a_flat_promise_is_checked_at_the_outermost_points() -> None:
    axis = polya(60, 0.8)
    level = PlanarNoise(axis).delta(1.0, 4.3)
    assert level >= max(
        planar_shift_delta(axis.law_for(1e-9, 4), 1.0, i, j) for i, j in displacements(4.3)
    )
    assert PlanarNoise(axis).covers(1.0, level * (1 + 1e-9), 4.3, "flat")
    assert not PlanarNoise(axis).covers(1.0, level * (1 - 1e-9), 4.3, "flat")


def test_pure_promises_in_the_plane() -> None:
    # |i| + |j| <= sqrt(2) |(i, j)|, attained on the diagonal.
    epsilon = 0.1 * math.sqrt(2) * 10
    noise = PlanarNoise(AdditiveNoise(Geometric(0.1)))
    assert noise.covers(epsilon, 0.0, 10)
    assert not noise.covers(epsilon * 0.999, 0.0, 10)
    assert PerAxisProfile(AdditiveNoise(Geometric(0.1))).covers(epsilon * (1 + 1e-14), 0.0, 10)


def test_beyond_the_joint_radius_the_per_axis_bound_answers() -> None:
    axis = polya(400, 0.5)
    far = JOINT_RADIUS + 1.0
    assert PlanarNoise(axis).delta(3.0, far) == PerAxisProfile(axis).delta(3.0, far)
    law = axis.law_for(1e-9, far)
    for i, j in [(201, 0), (200, 20), (180, 89), (142, 142)]:
        assert planar_shift_delta(law, 3.0, i, j) <= PlanarNoise(axis).delta(3.0, far)
    # A promise accounted per axis is kept jointly.
    epsilon = (
        1.01
        * math.sqrt(2)
        * max(axis.epsilon(5e-7, d) / d for d in (1, 50, 100, 150, 190, 200, 201))
        * far
    )
    assert PlanarNoise(axis).covers(epsilon, 1e-6, far)
    assert all(
        planar_shift_delta(law, epsilon * math.hypot(i, j) / far, i, j) <= 1e-6
        for i, j in [(1, 0), (7, 7), (201, 0), (142, 142)]
    )


def test_planar_refusals() -> None:
    with pytest.raises(ConditionError, match="log-concave"):
        planar_shift_delta(polya(0.5, 1.0).law_for(1e-9, 2), 0.1, 1, 1)
    for wrong in (math.nan, -1.0):
        with pytest.raises(InputError, match="epsilon"):
            PlanarNoise(polya(5, 1.0)).covers(wrong, 1e-6, 3)
    assert PlanarNoise(polya(5, 1.0)).delta(0.0, 0.99) == 0.0
    assert PlanarNoise(polya(5, 1.0)).covers(0.0, 1e-6, 0.99)

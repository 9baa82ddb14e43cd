"""K-norm noise: radius and direction, the leak of the published direction, and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.special import gammainc, ndtr
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value
from tests.tables import check_all

from metricshuffle.errors import ConditionError, DomainError, InputError
from metricshuffle.noise.k_norm import (
    BallNoise,
    DecimalDraws,
    GaussianNoise,
    L2Noise,
    LinfNoise,
    UnitBall,
    VectorNoise,
    high_precision,
)
from metricshuffle.numerics.types import Floats
from metricshuffle.randomness import Randomness

ONE = Fraction(1)
FINE = Fraction(1, 2**20)


def ellipse(x: Any) -> Any:
    return (x[0] * x[0] / 100 + x[1] * x[1]).sqrt()


ELLIPSE = UnitBall(ellipse, (Fraction(10), Fraction(1)))


def vectors(noise: VectorNoise, count: int, seed: int = 1) -> Floats:
    stream = Randomness.seeded(seed)
    return np.array(
        [noise.centres(noise.sample([0.0] * noise.dimension, stream)) for _ in range(count)]
    )


def uniform_p_value(levels: Floats, bins: int = 20) -> float:
    return p_value(np.floor(levels * bins).astype(int), [1 / bins] * bins)


@check_all(
    ("noise", "size"),
    [
        (L2Noise(3, ONE, FINE), lambda z: np.sqrt(np.sum(z * z, axis=1))),
        (LinfNoise(3, ONE, FINE), lambda z: np.max(np.abs(z), axis=1)),
        (BallNoise(2, ONE, FINE, ELLIPSE), lambda z: np.hypot(z[:, 0] / 10, z[:, 1])),
    ],
)
def test_the_norm_of_the_noise_is_gamma(noise: VectorNoise, size: Callable[[Any], Any]) -> None:
    sizes = size(vectors(noise, 1000))
    assert uniform_p_value(gammainc(noise.dimension, sizes)) > TOO_UNLIKELY
    assert uniform_p_value(gammainc(noise.dimension + 1, sizes)) < TOO_UNLIKELY


def test_the_direction_follows_the_cone_measure_of_an_ellipse() -> None:
    z = vectors(BallNoise(2, ONE, FINE, ELLIPSE), 1000)
    turn = (
        np.arctan2(z[:, 1], z[:, 0] / 10) / (2 * math.pi) + 0.5
    )  # the ellipse is a stretched disc: equal areas
    assert uniform_p_value(turn) > TOO_UNLIKELY
    # uniform on the surface: most of the length lies along the flat sides
    angles = np.linspace(0, 2 * math.pi, 200_001)
    length = np.cumsum(np.hypot(10 * np.sin(angles), np.cos(angles)))
    by_length = np.interp(2 * math.pi * turn, angles, length / length[-1])
    assert uniform_p_value(by_length) < TOO_UNLIKELY


def test_l2_directions_and_linf_points_are_uniform() -> None:
    z = vectors(L2Noise(3, ONE, FINE), 1000)
    assert (
        uniform_p_value(0.5 + 0.5 * z[:, 0] / np.sqrt(np.sum(z * z, axis=1))) > TOO_UNLIKELY
    )  # Archimedes
    w = vectors(LinfNoise(2, ONE, FINE), 1000)
    inner = np.min(np.abs(w), axis=1) / np.max(np.abs(w), axis=1)
    assert uniform_p_value(inner) > TOO_UNLIKELY


def test_gaussian_coordinates_are_normal_and_centred_on_the_values() -> None:
    noise = GaussianNoise(2, Fraction(1, 2), FINE)
    stream = Randomness.seeded(4)
    z = np.array(
        [noise.centres(noise.sample([Fraction(3), Fraction(-1, 3)], stream)) for _ in range(1000)]
    )
    for column, centre in ((z[:, 0], 3.0), (z[:, 1], -1 / 3)):
        assert uniform_p_value(ndtr((column - centre) / 0.5)) > TOO_UNLIKELY
        assert uniform_p_value(ndtr((column - centre) / 0.65)) < TOO_UNLIKELY


def surface_loss(point: Callable[[Floats], Floats]) -> float:
    """ln of the largest density ratio near 0 of Gamma(2) times uniform on the surface.

    It is length per area of the cone.
    """
    t = np.linspace(0, math.pi / 2, 100_001)
    p = point(t)
    step = 1e-6
    moved = (point(t + step) - point(t - step)) / (2 * step)
    length = np.hypot(*moved)
    area = np.abs(p[0] * moved[1] - p[1] * moved[0])
    density = length / area
    return float(np.log(density.max() / density.min()))


def test_uniform_on_the_surface_leaks_at_distance_zero() -> None:
    """Outputs on both sides of the origin: the loss does not shrink with the distance."""
    assert surface_loss(lambda t: np.array([10 * np.cos(t), np.sin(t)])) == pytest.approx(
        2.30258509299, rel=1e-8
    )

    def l3(t: Floats) -> Floats:
        x = np.cos(t)
        y = np.sin(t)
        return np.asarray(np.array([x, y]) / np.cbrt(np.abs(x) ** 3 + np.abs(y) ** 3))

    assert surface_loss(l3) == pytest.approx(0.115524530093, rel=1e-8)
    assert surface_loss(lambda t: np.array([np.cos(t), np.sin(t)])) < 1e-8  # l2: none


def test_the_cells_are_those_of_a_computation_with_twice_the_digits() -> None:
    """The same words, 240 digits: the noise agrees to far more than the claimed 2^-150."""
    for noise in (
        L2Noise(4, ONE, FINE),
        LinfNoise(4, ONE, FINE),
        GaussianNoise(5, ONE, FINE),
        BallNoise(2, ONE, FINE, ELLIPSE),
    ):
        found = []
        for digits in (120, 240):
            context = high_precision()
            context.prec = digits
            with localcontext(context):
                found.append(noise.vector(DecimalDraws(Randomness.seeded(8))))
        for a, b in zip(*found, strict=True):
            assert a != b
            assert abs(a - b) < Decimal(2) ** -330


def test_the_uniform_numbers_keep_their_512_bits() -> None:
    stream = Randomness.seeded(2)
    twin = Randomness.seeded(2)
    with localcontext(high_precision()):
        drawn = DecimalDraws(stream).uniform()
    exact = Fraction(2 * int.from_bytes(twin.words(8).tobytes(), "little") + 1, 2**513)
    assert abs(Fraction(drawn) / exact - 1) < Fraction(1, 10**118)


def test_the_variation_is_small_and_grows_with_what_it_counts() -> None:
    assert L2Noise(2, ONE, FINE).variation < 2.0**-106
    assert L2Noise(1000, ONE, Fraction(1, 2**10)).variation < 1000 * 2.0**-100
    assert BallNoise(2, ONE, FINE, ELLIPSE).variation >= L2Noise(2, ONE, FINE).variation
    assert L2Noise(3, ONE, FINE).variation > L2Noise(2, ONE, FINE).variation


def test_what_is_not_a_norm_is_refused() -> None:
    box = (ONE, ONE)
    wrong: list[tuple[Any, Any, str]] = [
        (lambda x: abs(x[0]) + abs(x[1]) + Decimal(1), box, "norm"),
        (lambda x: (abs(x[0]).sqrt() + abs(x[1]).sqrt()) ** 2, box, r"norm\(x \+ y\)"),
        (lambda x: Decimal(math.hypot(float(x[0]), float(x[1]))), box, "60 digits"),
        (lambda x: max(x), box, "norm|Decimal"),
        (lambda x: math.hypot(x[0], x[1]), box, "Decimal"),
        (ellipse, box, "box"),
    ]
    for norm, sides, rule in wrong:
        with pytest.raises(ConditionError, match=rule):
            UnitBall(norm, sides)
    with pytest.raises(ConditionError, match="sampler"):
        UnitBall(ellipse, (Fraction(10), ONE), points=lambda draws: [Decimal(11), Decimal(0)])
    with pytest.raises(InputError, match="box"):
        UnitBall(ellipse, ())


def test_a_sampler_of_the_ball_may_be_given() -> None:
    def points(draws: DecimalDraws) -> list[Decimal]:
        normal = draws.normals(
            4
        )  # the first two of four normals, divided by the length of all, are uniform in the disc
        length = sum((x * x for x in normal), Decimal(0)).sqrt()
        return [10 * normal[0] / length, normal[1] / length]

    z = vectors(BallNoise(2, ONE, FINE, UnitBall(ellipse, (Fraction(10), ONE), points)), 800)
    assert uniform_p_value(gammainc(2, np.hypot(z[:, 0] / 10, z[:, 1]))) > TOO_UNLIKELY


def test_wrong_parameters_and_values_are_refused() -> None:
    wrong: list[tuple[Any, Any, Any]] = [
        (0, ONE, FINE),
        (2, 1.0, FINE),
        (2, ONE, Fraction(0)),
        (2, ONE, Fraction(1, 2**41)),
        (9999, ONE, FINE),
    ]
    for dimension, scale, cell in wrong:
        with pytest.raises(InputError, match=r"dimension|scale|cell"):
            L2Noise(dimension, scale, cell)
    with pytest.raises(InputError, match="dimension 3"):
        BallNoise(3, ONE, FINE, ELLIPSE)
    noise = L2Noise(2, ONE, FINE)
    stream = Randomness.seeded(0)
    for values in ([1.0], [[1.0, 2.0]], [1.0, math.nan], [1.0, math.inf], [1e30, 0.0], [None, 1.0]):
        given: Any = values
        with pytest.raises((InputError, DomainError), match="values"):
            noise.sample(given, stream)


@check_all(("dimension", "side"), [(2, "0.99"), (2, "0.5"), (5, "0.9"), (5, "0.25")])
def test_a_slender_ball_that_juts_out_of_its_box_is_refused(dimension: int, side: str) -> None:
    """Half of such a ball was never drawn, which a release revealed.

    Random points hardly ever hit its tips.
    """
    together = Decimal("0.999")

    def norm(
        x: Any,
    ) -> Any:
        # of x S^-1 x, where S has 1 on the diagonal (half the widths of the ball) and 0.999
        # elsewhere
        total = sum(x, Decimal(0))
        squares = sum((c * c for c in x), Decimal(0))
        return (
            (squares - together / (1 - together + dimension * together) * total * total)
            / (1 - together)
        ).sqrt()

    UnitBall(norm, (ONE,) * dimension)
    with pytest.raises(ConditionError, match="the ball in its box"):
        UnitBall(norm, (Fraction(side),) * dimension)


def test_a_ball_on_a_line() -> None:
    assert UnitBall(lambda x: 3 * abs(x[0]), (Fraction(1, 3),)).axes == [Decimal(3)]
    with pytest.raises(ConditionError, match="the ball in its box"):
        UnitBall(lambda x: 3 * abs(x[0]), (Fraction(1, 4),))

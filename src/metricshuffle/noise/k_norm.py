"""K-norm and Gaussian noise on a vector, added in 120 decimal digits, then rounded to a grid.

protocols/answer_noise.py uses it for answers that are vectors. Noise z with a density proportional
to e^(-||z||/scale), in a given norm, gives pure epsilon 1/scale to a query that changes by at most
1 in that norm. These laws have no sampler in integers, so they are computed from the key stream to
so many digits that the released cells differ from those of the exact law with probability at most
`variation` (below 2^-100 per coordinate). A guarantee adds (1 + e^epsilon) times that to delta:
accounting.sums.rare_clamping.RarelyClampedProfile. Laplace noise (the l1 norm) needs none of this:
see grid_laplace.

The direction must follow the cone measure of the ball {norm <= 1}: uniform in the ball, or on the
sphere for l2. Uniform on the surface of another ball (Imola24, Algorithm 1, for a general norm) is
not private at any rate. D is the dimension of the vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, DomainError, InputError, NotCertified, argument
from metricshuffle.noise.grid_laplace import in_cells
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomness import Randomness

Vector = list[Decimal]
DecimalNorm = Callable[[Sequence[Decimal]], Decimal]

DECIMAL_DIGITS = 120
UNIFORM_WORDS = 8
FAILURE_PROBABILITY = 2.0**-112
MAX_DIMENSIONS = 4096
MAX_CELLS_PER_SCALE = 2**40
MAX_CELL = 2**51
MAX_TRIES = 100_000
MAX_LOOKS = 4_000  # evaluations of a norm, to find the extreme points of its ball
NORM_TOLERANCE = Decimal(10) ** -60

# Exact, unlike a power computed in the default context.
_TWO_POWER = Decimal(2 ** (64 * UNIFORM_WORDS + 1))


class DecimalDraws:
    """Uniform, exponential and normal numbers to 120 digits; use inside `high_precision()`."""

    def __init__(self, randomness: Randomness) -> None:
        self.randomness = randomness

    def uniform(self) -> Decimal:
        """Midpoint of one of 2^512 equal parts of (0, 1), chosen at random."""
        return (
            2 * int.from_bytes(self.randomness.words(UNIFORM_WORDS).tobytes(), "little") + 1
        ) / _TWO_POWER

    def symmetric(self) -> Decimal:
        """Uniform on (-1, 1)."""
        return 2 * self.uniform() - 1

    def gamma(self, shape: int) -> Decimal:
        """Gamma(shape, 1): minus the logarithm of a product of uniform numbers."""
        product = Decimal(1)
        for _ in range(shape):
            product *= self.uniform()
        return -product.ln()

    def normals(self, count: int) -> Vector:
        """Independent standard normals, by the polar method: logarithms and roots only."""
        numbers: Vector = []
        while len(numbers) < count:
            x = self.symmetric()
            y = self.symmetric()
            square = x * x + y * y
            if 0 < square < 1:
                factor = (-2 * square.ln() / square).sqrt()
                numbers += [x * factor, y * factor]
        return numbers[:count]


def high_precision() -> Context:
    """Decimal context for all computations of this module."""
    return Context(prec=DECIMAL_DIGITS, Emin=-999_999_999, Emax=999_999_999)


@dataclass(frozen=True)
class VectorNoise(ABC):
    """scale times a random vector, added to a vector and rounded to cubic cells of side `cell`."""

    dimension: int
    scale: Fraction
    cell: Fraction

    def __post_init__(self) -> None:
        if (
            isinstance(self.dimension, bool)
            or not isinstance(self.dimension, int)
            or not 1 <= self.dimension <= MAX_DIMENSIONS
        ):
            raise InputError(
                f"dimension must be a whole number in 1..{MAX_DIMENSIONS}, got {self.dimension!r}."
            )
        for name, value in (("scale", self.scale), ("cell", self.cell)):
            if not (isinstance(value, Fraction) and value > 0):
                raise InputError(f"{argument(name)} must be an exact Fraction > 0, got {value!r}.")
        if not Fraction(1, MAX_CELLS_PER_SCALE) <= self.scale / self.cell <= MAX_CELLS_PER_SCALE:
            raise InputError(
                "cells must lie within a factor 2^40 of the scale of the noise "
                f"{float(self.scale):g}, got {float(self.cell):g}."
            )

    @abstractmethod
    def vector(self, draws: DecimalDraws) -> Vector:
        """Draw one random vector of scale 1."""

    @property
    def largest_width(self) -> float:
        """max |x_j| in the unit ball (1 for normals)."""
        return 1.0

    @property
    def largest_axis(self) -> float:
        """max over j of the norm of the j-th unit vector (1 for normals)."""
        return 1.0

    @property
    @theorem("metricshuffle", "rounded high-precision noise is nearly exact")
    def variation(self) -> float:
        """Upper bound on the total variation distance between the sampled and the exact cells.

        The exact cells are floor((q + exact noise)/cell) for a vector q.

        Statement: couple the method with the same method run on real uniform numbers, the 512-bit
        ones being the midpoints of their parts. Let D be the dimension and width = `largest_width`.
        Exclude (i) a uniform number of the gamma below 2^-112, (ii) an accepted polar pair with x^2
        + y^2 within 2^-112 of 0 or 1, (iii) a vector of normals shorter than 2^-112, (iv) a point
        within a fraction 2^-112 of the surface of the ball (each has a probability below 2^-112,
        (iv) one below 4D 2^-112): at most 6D + 6 events. Otherwise x^2 + y^2 has a relative error
        of 2^-338 (near 1: 2^-394), logarithms one of 2^-338, normals one of 2^-330 and directions
        one of 2^-212. A coordinate of the noise has a size of at most 80 (D+1) scale width, so its
        error is at most e, which is 2^-150 times that size; adding q and dividing adds less than
        2^-300 cells. A cell changes only if an edge of a cell lies within e of the noisy
        coordinate. Let z be that coordinate of the noise and f its density, which is symmetric and
        log-concave. Then an edge lies within e with probability at most 2e (1/cell + f(0)). Let n
        be the norm of the unit vector of that axis. Then f(0) <= n/(2 scale), because a symmetric
        log-concave law has f(0) E|z| <= 1/2, and E|z| = (D+1) scale E|u| >= scale/n, where u is
        that coordinate of a uniform point of the ball: of all convex bodies with the same
        half-width v along the axis, a double cone has the smallest E|u|, v/(D+1), and v >= 1/n.
        Gaussian: f(0) = 0.4/scale.
        Conditions: 1/2^40 <= scale/cell <= 2^40, D <= 4096.
        Numerics: rounded up.
        Reference: this docstring.
        """
        count = self.dimension
        width = self.largest_width
        axis = self.largest_axis
        ratio = float(self.scale / self.cell)
        error = 80.0 * (count + 1) * 2.0**-150 * width * ratio + 2.0**-300  # in cells
        return (
            (6 * count + 6) * FAILURE_PROBABILITY + 2.0 * count * error * (1.0 + 0.5 * axis / ratio)
        ) * (1.0 + 1e-9)

    def sample(self, values: ArrayLike | Sequence[Fraction], randomness: Randomness) -> Integers64:
        """Draw one noisy vector as cells: floor((q_j + scale z_j)/cell) for every coordinate j."""
        exact = self._checked(values)
        if not self.variation <= 2.0**-100 * self.dimension:
            raise NotCertified(
                f"this noise is only known to be within {self.variation:.3g} of its law; "
                "use coarser cells."
            )
        with localcontext(high_precision()):
            ratio = (
                Decimal(self.scale.numerator)
                / Decimal(self.scale.denominator)
                * self.cell.denominator
                / self.cell.numerator
            )
            noise = self.vector(DecimalDraws(randomness))
            sums = [
                Decimal(q.numerator) / Decimal(q.denominator) + ratio * z
                for q, z in zip(exact, noise, strict=True)
            ]
            return np.array(
                [int(total.to_integral_value(ROUND_FLOOR)) for total in sums], dtype=np.int64
            )

    def centres(self, cells: Integers64) -> Floats:
        """Middle of each cell to the nearest double, which is the value released."""
        return np.array([float((2 * int(cell) + 1) * self.cell / 2) for cell in cells])

    def _checked(self, values: ArrayLike | Sequence[Fraction]) -> list[Fraction]:
        array = np.asarray(values)
        if array.shape != (self.dimension,):
            raise InputError(f"values must be {self.dimension} numbers, got shape {array.shape}.")
        exact = in_cells(array, self.cell)
        if max(abs(value) for value in exact) > MAX_CELL:
            raise DomainError("values must lie within 2^51 cells of 0; use coarser cells.")
        return exact


@dataclass(frozen=True)
class L2Noise(VectorNoise):
    """Density proportional to e^(-||z||_2 / scale): Gamma(D) times a uniform direction.

    For this norm the surface measure and the cone measure agree.
    """

    def vector(self, draws: DecimalDraws) -> Vector:
        normal = draws.normals(self.dimension)
        stretch = draws.gamma(self.dimension) / sum((x * x for x in normal), Decimal(0)).sqrt()
        return [stretch * x for x in normal]


@dataclass(frozen=True)
class LinfNoise(VectorNoise):
    """Density proportional to e^(-||z||_inf / scale): Gamma(D+1) times a uniform cube point."""

    def vector(self, draws: DecimalDraws) -> Vector:
        radius = draws.gamma(self.dimension + 1)
        return [radius * draws.symmetric() for _ in range(self.dimension)]


@dataclass(frozen=True)
class GaussianNoise(VectorNoise):
    """Independent normals with standard deviation `scale`."""

    def vector(self, draws: DecimalDraws) -> Vector:
        return draws.normals(self.dimension)


@dataclass(frozen=True)
class UnitBall:
    """Ball {norm <= 1}: a norm of Decimals, and a box |x_j| <= box[j] around it.

    `points`, if not None, draws the uniform points of the ball, which otherwise are drawn by
    rejection from the box. The norm is evaluated to 120 digits: use Decimal arithmetic only
    (`.sqrt()`, `**`), no floats. That it is a norm, that the ball lies in the box and that the
    sampler stays in the ball is only spot-checked, on random points and on the extreme points of
    the ball; the caller must prove it.
    """

    norm: DecimalNorm
    box: tuple[Fraction, ...]
    points: Callable[[DecimalDraws], Vector] | None = None

    def __post_init__(self) -> None:
        if not self.box or any(
            not (isinstance(side, Fraction) and 0 < side < 10**9) for side in self.box
        ):
            raise InputError(
                "box must hold a Fraction > 0 (half the width of the ball, up to 10^9) for "
                "each coordinate."
            )
        with localcontext(high_precision()):
            self._spot_check(DecimalDraws(Randomness.seeded("spot checks of a norm")))

    @cached_property
    def axes(self) -> list[Decimal]:
        """Norm of each unit vector."""
        count = len(self.box)
        with localcontext(high_precision()):
            return [self.norm([Decimal(int(i == j)) for i in range(count)]) for j in range(count)]

    def _sides(self) -> Vector:
        return [Decimal(side.numerator) / Decimal(side.denominator) for side in self.box]

    def _spot_check(self, draws: DecimalDraws) -> None:
        def need(holds: bool, rule: str, got: str) -> None:
            if not holds:
                raise ConditionError("A K-norm", rule, got)

        sides = self._sides()
        trials = [[side * draws.symmetric() for side in sides] for _ in range(24)]
        trials += [[Decimal(int(i == j)) for i in range(len(sides))] for j in range(len(sides))]

        def look(x: Vector, y: Vector) -> None:
            size = self.norm(x)
            need(
                isinstance(size, Decimal) and size > 0,
                "a positive Decimal for every vector but 0",
                f"{size!r}",
            )
            factor = -7 * draws.uniform()
            off = abs(self.norm([factor * c for c in x]) + factor * size)
            need(
                off <= NORM_TOLERANCE * size,
                "norm(t x) = |t| norm(x) to 60 digits",
                f"a difference of {off:.3g} (floats are too coarse)",
            )
            both = self.norm([a + b for a, b in zip(x, y, strict=True)])
            need(
                both <= (size + self.norm(y)) * (1 + NORM_TOLERANCE),
                "norm(x + y) <= norm(x) + norm(y)",
                f"{both:.6g} for one pair",
            )
            need(
                all(
                    abs(c) <= side * size * (1 + NORM_TOLERANCE)
                    for c, side in zip(x, sides, strict=True)
                ),
                "the ball in its box",
                f"{size:.6g}",
            )
            if self.points is not None:
                inside = self.norm(self.points(draws))
                need(
                    inside <= 1 + NORM_TOLERANCE,
                    "a sampler of points in the ball",
                    f"a point of norm {inside:.6g}",
                )

        for n, x in enumerate(trials):
            look(x, trials[n - 1])
        # Parts of the ball outside the box would never be drawn.
        if self.points is None and 1 < len(sides) ** 2 <= MAX_LOOKS:
            for j in range(len(sides)):
                look(self._farthest(j, sides, trials), trials[j])

    def _farthest(self, axis: int, sides: Vector, trials: list[Vector]) -> Vector:
        """Approximate point where the ball is widest along an axis.

        There the norm, a convex function, is smallest for x_axis = 1. Random points alone do not
        find the extreme points of a thin ball that is not aligned with the axes.
        """
        from scipy.optimize import minimize

        def point(others: Any) -> Vector:
            free = [
                Decimal(float(coordinate)) * side
                for coordinate, side in zip(
                    others, [*sides[:axis], *sides[axis + 1 :]], strict=True
                )
            ]
            return [*free[:axis], sides[axis], *free[axis:]]

        start = max(trials, key=lambda x: abs(x[axis]) / self.norm(x))
        at = np.array(
            [float(c * sides[axis] / (x * start[axis])) for c, x in zip(start, sides, strict=True)]
        )
        search: Any = minimize  # its stubs have too many overloads
        few = {"maxiter": MAX_LOOKS // len(sides) ** 2 + 2}
        return point(
            search(
                lambda others: float(self.norm(point(others))),
                np.delete(at, axis),
                method="BFGS",
                options=few,
            ).x
        )

    def uniform(self, draws: DecimalDraws) -> Vector:
        """Draw a uniform point of the ball, by rejection from the box unless there is a sampler."""
        if self.points is not None:
            return self.points(draws)
        sides = self._sides()
        for _ in range(MAX_TRIES):
            x = [side * draws.symmetric() for side in sides]
            if self.norm(x) <= 1:
                return x
        raise NotCertified(
            "the ball fills less than one part in 10^4 of its box; give a tighter box or a "
            "sampler of the ball."
        )


@dataclass(frozen=True)
class BallNoise(VectorNoise):
    """Density proportional to e^(-norm(z)/scale): Gamma(D+1) times a uniform point of the ball."""

    ball: UnitBall

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.ball.box) != self.dimension:
            raise InputError(
                f"ball must be a UnitBall of dimension {self.dimension}, got one of "
                f"{len(self.ball.box)}."
            )

    @property
    def largest_width(self) -> float:
        return float(max(self.ball.box)) * (1.0 + 1e-9)

    @property
    def largest_axis(self) -> float:
        return float(max(self.ball.axes)) * (1.0 + 1e-9)

    def vector(self, draws: DecimalDraws) -> Vector:
        radius = draws.gamma(self.dimension + 1)
        return [radius * x for x in self.ball.uniform(draws)]

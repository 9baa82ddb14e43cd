"""Noise on answer vectors, added before any rounding and sent as whole numbers of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from metricshuffle.accounting.user_items.lipschitz import NormName
from metricshuffle.errors import InputError, argument
from metricshuffle.estimation.interval_widths import normal_width
from metricshuffle.models import FrozenModel, Positive, Whole
from metricshuffle.noise.grid_laplace import GridLaplace, Ratios
from metricshuffle.noise.k_norm import BallNoise, GaussianNoise, L2Noise, LinfNoise, VectorNoise
from metricshuffle.noise.polytope import Polytope
from metricshuffle.queries.exact_features import ExactAnswers
from metricshuffle.randomness import Randomness

Floats = NDArray[np.float64]
Cells = NDArray[np.int64]
Noise = Literal["l1", "l2", "linf", "gaussian", "k-norm"]
# Cells per scale of the noise: rounding adds less than a millionth to the variance of the noise.
CELLS_PER_SCALE = 1024
NUMBERS_AT_ONCE = 2**18  # fits the processor cache, where a dozen such arrays are used at once
LN_4 = math.log(4.0)


class AnswerNoise(FrozenModel):
    """K-norm noise (density e^(-norm/scale)) or Gaussian noise on vectors of `coordinates` numbers.

    The standard deviation of the Gaussian is `scale`. "l1" is Laplace noise on each coordinate,
    drawn exactly; the other noises are drawn to within `inexactness` in total variation. The sum of
    answer and noise is rounded down to cells of `cell`, which is post-processing; answers are never
    rounded before.
    """

    noise: Noise
    scale: Positive
    coordinates: Whole
    cell: Positive

    def __init__(
        self,
        noise: Noise,
        scale: float,
        coordinates: int,
        cell: float | None = None,
        **fields: object,
    ) -> None:
        if isinstance(scale, int | float) and not 1e-290 < scale < 1e290:
            raise InputError(
                f"the noise would need a scale of {scale:.3g}, which is beyond 1e-290 to "
                "1e290; ask for a promise between these."
            )
        if cell is None and isinstance(scale, int | float):
            cell = 2.0 ** math.floor(math.log2(scale / CELLS_PER_SCALE))
        FrozenModel.__init__(
            self, noise=noise, scale=scale, coordinates=coordinates, cell=cell, **fields
        )

    @model_validator(mode="after")
    def _has_facets(self) -> Self:
        if (self.noise == "k-norm") != isinstance(self, KNormNoise):
            raise InputError(f'{argument("noise")} "k-norm" needs the facets of a polytope')
        return self

    @property
    def norm(self) -> NormName | Polytope:
        """Norm in which features are measured to calibrate this noise."""
        if self.noise == "gaussian":
            return "l2" if self.coordinates > 1 else "l1"
        if self.noise == "k-norm":
            raise InputError("the norm of a polytope is that of its facets.")
        return self.noise

    @property
    def variances(self) -> Floats:
        """Variance of each coordinate, including the position within a cell."""
        return np.full(self.coordinates, self.variance)

    @property
    def variance(self) -> float:
        """Variance of one coordinate, including the position within a cell."""
        size = float(self.coordinates)
        noise_variance = {
            "l1": 2.0,
            "l2": size + 1.0,
            "linf": (size + 1.0) * (size + 2.0) / 3.0,
            "gaussian": 1.0,
        }[self.noise]
        return noise_variance * self.scale**2 + self.cell**2 / 12.0

    def mean_size(self, draws: int = 1) -> float:
        """Mean absolute value of one coordinate of a sum of `draws` draws.

        Statement: let D be the number of coordinates, n = `draws`, and u one coordinate of a
        uniform point on the unit sphere in D dimensions, E|u| = Gamma(D/2)/(sqrt(pi)
        Gamma((D+1)/2)). For one draw the mean is scale for Laplace noise, sqrt(2/pi) scale for the
        Gaussian, D E|u| scale for noise on the sphere ("l2"), and (D+1)/2 scale for noise in the
        cube ("linf"). For n draws the Gaussian mean is sqrt(2 n/pi) scale; a sum of n Laplace
        numbers is the difference of two Gamma(n) numbers, so its mean is 2n C(2n, n)/4^n scale, C
        being the binomial coefficient. All other sums take the normal approximation corrected by
        the fourth moment, sqrt(2 n variance/pi) (1 - kurtosis/(24n)), which is within 2 % from two
        draws on.
        """
        size = float(self.coordinates)
        if self.noise == "gaussian":
            return self.scale * math.sqrt(2.0 * draws / math.pi)
        if self.noise == "l1":
            # lgamma cancels for many draws; the next term of Stirling's series suffices there.
            if draws > 1000:
                return self.scale * 2.0 * math.sqrt(draws / math.pi) * (1.0 - 0.125 / draws)
            return self.scale * math.exp(
                math.log(2.0 * draws)
                + math.lgamma(2 * draws + 1)
                - 2.0 * math.lgamma(draws + 1)
                - draws * LN_4
            )
        if draws == 1:
            sphere = math.exp(math.lgamma(0.5 * size) - math.lgamma(0.5 * size + 0.5)) / math.sqrt(
                math.pi
            )
            return self.scale * (size * sphere if self.noise == "l2" else 0.5 * (size + 1.0))
        second, kurtosis = self._moments
        return (
            self.scale
            * math.sqrt(2.0 * draws * second / math.pi)
            * (1.0 - kurtosis / (24.0 * draws))
        )

    @property
    def _moments(self) -> tuple[float, float]:
        """E z^2 and E z^4 / (E z^2)^2 - 3 of one coordinate z of the noise, for scale 1.

        For u, one coordinate of a uniform point, E u^4 is 3/(D(D+2)) on the unit sphere in D
        dimensions and 1/5 in the cube [-1, 1]^D.
        """
        if self.noise in ("l1", "gaussian"):
            return (2.0, 3.0) if self.noise == "l1" else (1.0, 0.0)
        size = float(self.coordinates)
        second, fourth = {
            "l2": (1.0 / size, 3.0 / (size * (size + 2.0))),
            "linf": (1.0 / 3.0, 0.2),
        }[self.noise]
        shape = size if self.noise == "l2" else size + 1.0
        second = second * shape * (shape + 1.0)
        fourth = fourth * shape * (shape + 1.0) * (shape + 2.0) * (shape + 3.0)
        return second, fourth / second**2 - 3.0

    def width(self, draws: int, miss: float) -> float:
        """Standard errors that a sum of draws exceeds, on either side, with probability ~ `miss`.

        This is the normal quantile, corrected by the fourth moment (Cornish and Fisher), because
        normal tails are too light for thousands of simultaneous intervals.
        """
        normal = normal_width(miss)
        return normal + max(0.0, self._moments[1] * (normal**3 - 3.0 * normal)) / (24.0 * draws)

    @property
    def inexactness(self) -> float:
        """Total variation between the law of one vector and the law that is accounted for."""
        if self.noise == "l1":
            return 0.0
        return self._vector_noise.variation

    def on_each(self, answers: ExactAnswers, randomness: Randomness) -> Cells:
        """Add noise to the answer of each user; return one row of cells per user."""
        if self.noise == "l1":
            grid = GridLaplace.at_least(self.scale, Fraction(self.cell))
            cells = np.empty(answers.numerators.shape, dtype=np.int64)
            step = max(1, NUMBERS_AT_ONCE // self.coordinates)
            for start in range(0, len(cells), step):
                above = answers.numerators[start : start + step]
                below = np.repeat(answers.sizes[start : start + step], above.shape[1])
                noisy_cells = grid.sample(
                    Ratios(above.ravel().astype(np.int64), below, answers.power), randomness
                )
                cells[start : start + step] = noisy_cells.reshape(above.shape)
            return cells
        return np.stack(
            [self.on(answers.exact(user), randomness) for user in range(len(answers.sizes))]
        )

    def on(self, vector: list[Fraction], randomness: Randomness) -> Cells:
        """Add noise to one exact vector, such as the sum of all answers."""
        if self.noise == "l1":
            return np.asarray(
                GridLaplace.at_least(self.scale, Fraction(self.cell)).sample(vector, randomness)
            )
        return np.asarray(self._vector_noise.sample(vector, randomness))

    @cached_property
    def _vector_noise(self) -> VectorNoise:
        kinds: dict[str, Callable[[int, Fraction, Fraction], VectorNoise]] = {
            "l2": L2Noise,
            "linf": LinfNoise,
            "gaussian": GaussianNoise,
        }
        kind = kinds[self.noise]
        return kind(self.coordinates, Fraction(self.scale), Fraction(self.cell))

    def middles(self, cells: object, draws: int) -> Floats:
        """Value of a sum of `draws` numbers of cells, each counted at the middle of its cell."""
        return (np.asarray(cells, dtype=np.float64) + 0.5 * draws) * self.cell


class KNormNoise(AnswerNoise):
    """Noise with density proportional to e^(-norm/scale), in the norm of a polytope.

    This is the K-norm mechanism of Hardt and Talwar. The variances of the coordinates differ, so
    `variance` and `mean_size` are means over the coordinates.
    """

    noise: Literal["k-norm"] = "k-norm"
    facets: tuple[tuple[Whole, ...], ...]

    def __init__(
        self,
        scale: float,
        facets: tuple[tuple[int, ...], ...],
        cell: float | None = None,
        coordinates: int | None = None,
        noise: Noise = "k-norm",
        **fields: object,
    ) -> None:
        columns = len(facets[0]) if coordinates is None and facets else coordinates or 0
        AnswerNoise.__init__(self, noise, scale, columns, cell, facets=facets, **fields)

    @model_validator(mode="after")
    def _is_a_polytope(self) -> Self:
        if self.polytope.dimension != self.coordinates:
            raise InputError(
                f"facets must have {self.coordinates} numbers each, got {self.polytope.dimension}"
            )
        return self

    @cached_property
    def polytope(self) -> Polytope:
        """The unit ball of the norm."""
        return Polytope(self.facets)

    @property
    def norm(self) -> NormName | Polytope:
        return self.polytope

    @property
    def variances(self) -> Floats:
        """Variance of each coordinate, including the position within a cell.

        Statement: let u be uniform in the unit ball of the norm, and let z be u times a Gamma(D+1)
        number; then E z_j^2 = (D+1)(D+2) E u_j^2.
        """
        size = self.coordinates
        squares = (size + 1.0) * (size + 2.0) * self.polytope.squares
        return np.asarray(squares * self.scale**2 + self.cell**2 / 12.0)

    @property
    def variance(self) -> float:
        return float(self.variances.mean())

    def mean_size(self, draws: int = 1) -> float:
        """Mean over the coordinates of the mean absolute value; normal for several draws."""
        if draws == 1:
            return self.scale * (self.coordinates + 1.0) * float(self.polytope.mean_sizes.mean())
        return float(np.sqrt(2.0 * draws * self.variances / math.pi).mean())

    @cached_property
    def _vector_noise(self) -> VectorNoise:
        return BallNoise(
            self.coordinates, Fraction(self.scale), Fraction(self.cell), self.polytope.ball
        )

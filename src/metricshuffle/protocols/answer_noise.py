"""Noise on vectors of answers: drawn exactly, added before anything is rounded, and sent as whole numbers of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError
from metricshuffle.models import FrozenModel, Positive, Whole
from metricshuffle.noise.grid_laplace import GridLaplace, Ratios
from metricshuffle.noise.k_norm import GaussianNoise, L2Noise, LinfNoise, VectorNoise
from metricshuffle.protocols.frequencies import normal_width
from metricshuffle.queries.exact_features import ExactAnswers
from metricshuffle.randomness import Randomness

Floats = NDArray[np.float64]
Cells = NDArray[np.int64]
Noise = Literal["l1", "l2", "linf", "gaussian"]
# The grid is this much finer than the noise: rounding adds less than a millionth to its variance.
CELLS_PER_SCALE = 1024
NUMBERS_AT_ONCE = 2**18  # what fits near the processor: a dozen arrays of them are in use at once
LN_4 = math.log(4.0)


class AnswerNoise(FrozenModel):
    """K-norm noise (density e^(-norm/scale)) or a Gaussian (standard deviation `scale`) on vectors of `coordinates` numbers.

    "l1" is Laplace noise on each coordinate, drawn exactly; the others are drawn to within `inexactness` in total variation.
    The sum of answer and noise is rounded down to cells of `cell`, which is post-processing; answers are never rounded first.
    """

    noise: Noise
    scale: Positive
    coordinates: Whole
    cell: Positive

    def __init__(self, noise: Noise, scale: float, coordinates: int, cell: float | None = None, **fields: Any) -> None:
        if isinstance(scale, int | float) and not 1e-290 < scale < 1e290:
            raise InputError(
                f"the noise would need a scale of {scale:.3g}, which is beyond 1e-290 to 1e290; ask for a promise between these."
            )
        if cell is None and isinstance(scale, int | float):
            cell = 2.0 ** math.floor(math.log2(scale / CELLS_PER_SCALE))
        FrozenModel.__init__(self, noise=noise, scale=scale, coordinates=coordinates, cell=cell, **fields)

    @property
    def variance(self) -> float:
        """Of one coordinate, the place within a cell included."""
        size = float(self.coordinates)
        noise_variance = {"l1": 2.0, "l2": size + 1.0, "linf": (size + 1.0) * (size + 2.0) / 3.0, "gaussian": 1.0}[self.noise]
        return noise_variance * self.scale**2 + self.cell**2 / 12.0

    def mean_size(self, draws: int = 1) -> float:
        """The mean absolute value of one coordinate of a sum of so many draws.

        Statement: one draw: scale for Laplace noise, sqrt(2/pi) scale for the Gaussian, D E|u| scale on the sphere with
        E|u| = Gamma(D/2)/(sqrt(pi) Gamma((D+1)/2)), (D+1)/2 scale in the cube. Sums: exact for the Gaussian; n Laplace numbers are the
        difference of two Gamma(n) ones, 2n C(2n, n)/4^n scale; else the normal approximation corrected by the fourth
        moment, sqrt(2 n variance/pi) (1 - kurtosis/(24n)), within 2 % from two draws on.
        """
        size = float(self.coordinates)
        if self.noise == "gaussian":
            return self.scale * math.sqrt(2.0 * draws / math.pi)
        if self.noise == "l1":  # (lgamma cancels for many draws: there the next term of Stirling's series is enough)
            if draws > 1000:
                return self.scale * 2.0 * math.sqrt(draws / math.pi) * (1.0 - 0.125 / draws)
            return self.scale * math.exp(math.log(2.0 * draws) + math.lgamma(2 * draws + 1) - 2.0 * math.lgamma(draws + 1) - draws * LN_4)
        if draws == 1:
            sphere = math.exp(math.lgamma(0.5 * size) - math.lgamma(0.5 * size + 0.5)) / math.sqrt(math.pi)
            return self.scale * (size * sphere if self.noise == "l2" else 0.5 * (size + 1.0))
        second, kurtosis = self._moments
        return self.scale * math.sqrt(2.0 * draws * second / math.pi) * (1.0 - kurtosis / (24.0 * draws))

    @property
    def _moments(self) -> tuple[float, float]:
        """E z^2 and E z^4 / (E z^2)^2 - 3 of one coordinate, the scale being 1; E u^4 is 3/(D(D+2)) on the sphere and 1/5 in the cube."""
        if self.noise in ("l1", "gaussian"):
            return (2.0, 3.0) if self.noise == "l1" else (1.0, 0.0)
        size = float(self.coordinates)
        second, fourth = {"l2": (1.0 / size, 3.0 / (size * (size + 2.0))), "linf": (1.0 / 3.0, 0.2)}[self.noise]
        shape = size if self.noise == "l2" else size + 1.0
        second, fourth = second * shape * (shape + 1.0), fourth * shape * (shape + 1.0) * (shape + 2.0) * (shape + 3.0)
        return second, fourth / second**2 - 3.0

    def width(self, draws: int, miss: float) -> float:
        """How many standard errors a sum of so many draws exceeds, to either side, with probability about `miss`.

        The normal law, corrected by the fourth moment (Cornish and Fisher): its tails are too light where thousands must hold at once.
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
        """Noise on the answer of each user: one row of cells a user."""
        if self.noise == "l1":
            grid, cells = GridLaplace.at_least(self.scale, Fraction(self.cell)), np.empty(answers.numerators.shape, dtype=np.int64)
            step = max(1, NUMBERS_AT_ONCE // self.coordinates)
            for start in range(0, len(cells), step):
                above = answers.numerators[start : start + step]
                below = np.repeat(answers.sizes[start : start + step], above.shape[1])
                noisy_cells = grid.sample(Ratios(above.ravel().astype(np.int64), below, answers.power), randomness)
                cells[start : start + step] = noisy_cells.reshape(above.shape)
            return cells
        return np.stack([self.on(answers.exact(user), randomness) for user in range(len(answers.sizes))])

    def on(self, vector: list[Fraction], randomness: Randomness) -> Cells:
        """Noise on one exact vector: the sum of everybody's answers, say."""
        if self.noise == "l1":
            return np.asarray(GridLaplace.at_least(self.scale, Fraction(self.cell)).sample(vector, randomness))
        return np.asarray(self._vector_noise.sample(vector, randomness))

    @cached_property
    def _vector_noise(self) -> VectorNoise:
        kinds: dict[str, Callable[[int, Fraction, Fraction], VectorNoise]] = {"l2": L2Noise, "linf": LinfNoise, "gaussian": GaussianNoise}
        kind = kinds[self.noise]
        return kind(self.coordinates, Fraction(self.scale), Fraction(self.cell))

    def middles(self, cells: Any, draws: int) -> Floats:
        """What a sum of `draws` numbers of cells stands for: every one of them counts at the middle of its cell."""
        return (np.asarray(cells, dtype=np.float64) + 0.5 * draws) * self.cell

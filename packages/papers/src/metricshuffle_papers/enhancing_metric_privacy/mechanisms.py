"""Mechanisms of Athanasiou25, with the noise of its theorems and with the noise that is needed.

epsilon is per unit of distance here, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.planar_noise import PlanarNoise
from metricshuffle.errors import ConditionError
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import rational_rate
from metricshuffle.numerics.certified_search import last_certified
from metricshuffle.planning.candidates.flipped_bit_calibration import randomized_response
from metricshuffle.planning.candidates.sum_setting import SumSetting
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.calibration import largest_rate
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries import Mean
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.count_response import FLIP_DENOMINATOR, CountResponse
from metricshuffle.randomness import Randomness
from metricshuffle.simulation.fast_draws import total_errors
from metricshuffle.spaces import Integers
from metricshuffle_papers.enhancing_metric_privacy import formulas as paper

Randomizer = AdditiveRandomizer | CountResponse
Floats = NDArray[np.float64]

PROTOCOLS: dict[
    str,
    Literal["geometric-local", "randomized-response-shuffle", "geometric-shuffle", "polya-shuffle"],
] = {
    "Geo-Local": "geometric-local",
    "RR-Shuffle": "randomized-response-shuffle",
    "Geo-Shuffle": "geometric-shuffle",
    "SGDL-Shuffle": "polya-shuffle",
}
"""Our name for each of the paper's."""
SPAN = 1000
"""Largest value; the paper's values lie in 0..1000."""
LARGEST_RATE = 20.0
CALIBRATION = 1e-6


@dataclass(frozen=True)
class Mechanism:
    """Randomizer of one report on each of one or two axes."""

    name: str
    axes: tuple[Randomizer, ...]

    def mean_error(self, users: int) -> float:
        """Expected error of the total, Euclidean on two axes."""
        return Sums(
            name=PROTOCOLS[self.name], trusted="shuffler", randomizers=self.axes
        ).mean_error(users)

    def root_mean_square(self, users: int) -> float:
        return math.sqrt(sum(one.total_variance(users) for one in self.axes))

    def errors(self, users: int, runs: int, randomness: Randomness) -> Floats:
        """Simulated errors of the total, one row per run and one column per axis."""
        return np.stack(
            [total_errors(one, users, users, runs, randomness) for one in self.axes], axis=1
        )

    def errors_on(self, cells: NDArray[np.int64], runs: int, randomness: Randomness) -> Floats:
        """Simulated errors from reports made for these values in every run, one column per axis."""
        columns = []
        for one, values in zip(self.axes, cells.T, strict=True):
            if isinstance(one, CountResponse):
                # The count depends on the data only through its total, and its spread not at all.
                columns.append(total_errors(one, len(cells), len(cells), runs, randomness))
            else:
                column = np.ascontiguousarray(values)
                columns.append(
                    np.array(
                        [
                            float((one.reports(column, randomness) - column).sum())
                            for _ in range(runs)
                        ]
                    )
                )
        return np.stack(columns, axis=1)

    def twice(self) -> Mechanism:
        """Mechanism on both axes of a plane."""
        return Mechanism(self.name, (self.axes[0], self.axes[0]))


def geometric(name: str, shape: Fraction, rate: float, span: int = SPAN) -> Mechanism:
    """Noise of a shape in each report, at the nearest rate that can be sampled exactly.

    The sampled noise is never less than at the given rate.
    """
    return Mechanism(
        name, (AdditiveRandomizer(span=span, shape=shape, rate=float(rational_rate(rate))),)
    )


@lru_cache(maxsize=256)
def published_rate(epsilon: float, users: int, delta: float) -> float:
    """Noise rate for which Theorem 4.1 claims `epsilon`.

    Its floors make the claim jump; one of several such rates is returned.
    """
    return last_certified(
        lambda rate: paper.geo_shuffle_epsilon(rate, users, delta).claim <= epsilon,
        LARGEST_RATE,
        epsilon,
        relative=CALIBRATION,
    )


@lru_cache(maxsize=256)
def needed_rate(epsilon: float, users: int, delta: float, distance: int) -> float:
    """Largest rate certified for epsilon * d and delta, for every move d up to `distance`."""
    promise = Target(epsilon * distance, delta, distance)
    return largest_rate(
        lambda rate: AdditiveNoise(Polya(Fraction(users), rate)), promise, relative=CALIBRATION
    )


@lru_cache(maxsize=256)
def needed_planar_rate(epsilon: float, users: int, delta: float, radius: float) -> float:
    """Largest rate for moves up to `radius` cells in a plane, both axes accounted together.

    `epsilon` is the total at that radius.
    """
    pure = epsilon / radius / math.sqrt(2.0)
    promise = Target(epsilon, delta, radius)
    return largest_rate(
        lambda rate: PlanarNoise(AdditiveNoise(Polya(Fraction(users), rate))),
        promise,
        start=pure,
        relative=CALIBRATION,
    )


def published_response(
    epsilon: float, users: int, delta: float, span: int = SPAN
) -> Mechanism | None:
    """RR-Shuffle with the random bits of Theorem 3.1; None if that is more than all bits."""
    random_bit = paper.rr_lambda(epsilon, delta).claim / (users * span)
    flip = round(0.5 * random_bit * FLIP_DENOMINATOR) / FLIP_DENOMINATOR
    return Mechanism("RR-Shuffle", (CountResponse(span=span, flip=flip),)) if flip < 0.5 else None


@lru_cache(maxsize=64)
def needed_response(
    epsilon: float, users: int, delta: float, distance: int, span: int = SPAN
) -> Mechanism | None:
    """RR-Shuffle with the flips needed for moves up to `distance`; None if no flip is enough."""
    query = Mean(domain=Integers(0, span))
    setting = Setting(query, Target(epsilon * distance, delta, float(distance)), users, users)
    try:
        found = randomized_response(SumSetting(setting, query)).mechanism
    except ConditionError:
        return None
    return Mechanism("RR-Shuffle", found.randomizers) if isinstance(found, Sums) else None


def fewest_users(epsilon: float, delta: float, span: int = SPAN) -> int:
    """Number of people Theorem 3.1 needs: lambda random bits among users * span bits."""
    return math.ceil(paper.rr_lambda(epsilon, delta).claim / span)


def as_published(
    epsilon: float, users: int, delta: float, span: int = SPAN
) -> dict[str, Mechanism | None]:
    """Mechanisms with the noise of the paper's theorems (None where a theorem does not apply)."""
    return {
        "Geo-Local": geometric("Geo-Local", Fraction(1), epsilon, span),
        "RR-Shuffle": published_response(epsilon, users, delta, span),
        "Geo-Shuffle": geometric(
            "Geo-Shuffle", Fraction(1), published_rate(epsilon, users, delta), span
        )
        if users > 4
        else None,
        "SGDL-Shuffle": geometric("SGDL-Shuffle", Fraction(1, users), epsilon, span),
    }


def as_needed(
    epsilon: float, users: int, delta: float, distance: int, span: int = SPAN
) -> dict[str, Mechanism | None]:
    """Mechanisms with the least noise that is certified for moves up to `distance`.

    Geo-Local and SGDL-Shuffle (its noise unbounded, as in a modular sum) hold at every distance
    with delta = 0.
    """
    return {
        "Geo-Local": geometric("Geo-Local", Fraction(1), epsilon, span),
        "RR-Shuffle": needed_response(epsilon, users, delta, distance, span),
        "Geo-Shuffle": geometric(
            "Geo-Shuffle", Fraction(1), needed_rate(epsilon, users, delta, distance), span
        ),
        "SGDL-Shuffle": geometric("SGDL-Shuffle", Fraction(1, users), epsilon, span),
    }


def each(
    mechanisms: dict[str, Mechanism | None], value: Callable[[Mechanism], float]
) -> dict[str, float | None]:
    """Value of every mechanism that exists."""
    return {name: None if one is None else value(one) for name, one in mechanisms.items()}

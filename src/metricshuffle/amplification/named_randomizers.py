"""Randomizers by the names that `amplify` has for them on the command line and on the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from metricshuffle import randomizers
from metricshuffle.errors import InputError, MetricShuffleError, argument
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.spaces.distance_matrix import Matrix

LINE_STEPS = 64
HAT_STEPS = 32
MAX_LOCAL_EPSILON = 700.0
"""A larger local epsilon cannot be distinguished from no privacy in double precision."""
MAX_POINTS = 512
"""Most points with a table of distances; more would take minutes to account for."""

# name -> class, and the option behind each of its arguments
CLASSES: dict[str, tuple[str, dict[str, str]]] = {
    "krr": ("KaryRandomizedResponse", {"options": "options", "epsilon": "local-epsilon"}),
    "laplace": (
        "LaplaceOnInterval",
        {"low": "low", "high": "high", "rate": "rate", "steps": "steps"},
    ),
    "witch-hat": (
        "WitchHat",
        {
            "half_width": "half-width",
            "epsilon": "local-epsilon",
            "rate": "rate",
            "steps": "steps",
        },
    ),
    "gaussian": ("DiscreteGaussian", {"span": "span", "sigma": "sigma", "margin": "margin"}),
    "hadamard": ("HadamardResponse", {"options": "options", "epsilon": "local-epsilon"}),
    "subset": (
        "SubsetSelection",
        {"options": "options", "epsilon": "local-epsilon", "size": "size"},
    ),
    "hash": (
        "LocalHash",
        {"options": "options", "epsilon": "local-epsilon", "buckets": "buckets"},
    ),
    "rappor": ("Rappor", {"options": "options", "epsilon": "local-epsilon"}),
    "exponential": ("ExponentialMechanism", {"distances": "distances", "rate": "rate"}),
    "pem": ("PaddedExponential", {"distances": "distances", "rate": "rate"}),
    "gkrr": (
        "ClusteredResponse",
        {"clusters": "clusters", "size": "leaves", "inner": "inner", "epsilon": "rate"},
    ),
    "duchi": ("Duchi", {"dimensions": "dimensions", "epsilon": "local-epsilon"}),
    "harmony": ("Harmony", {"dimensions": "dimensions", "epsilon": "local-epsilon"}),
    "privset": (
        "SubsetExponential",
        {"options": "options", "held": "items", "epsilon": "local-epsilon", "size": "size"},
    ),
    "privkv": (
        "PrivKV",
        {
            "keys": "keys",
            "held": "items",
            "key_epsilon": "key-epsilon",
            "value_epsilon": "value-epsilon",
        },
    ),
}
STEPS = {"laplace": LINE_STEPS, "witch-hat": HAT_STEPS}


def build_randomizer(name: str, values: Mapping[str, Any]) -> Randomizer:
    """Return the randomizer called `name`, built from the values of its options.

    Options that are None or missing take the defaults of `amplify`. Errors name the options.
    """
    class_name, options = CLASSES[name]
    typed: dict[str, Any] = {
        argument_name: values.get(option) for argument_name, option in options.items()
    }
    if name in STEPS and typed["steps"] is None:
        typed["steps"] = STEPS[name]
    if "distances" in typed:
        if typed["distances"] is None:
            typed["distances"] = line_distances(
                values["low"], values["high"], values.get("steps") or LINE_STEPS
            )
        _check_largest_loss(typed["rate"], typed["distances"])
    present = {argument_name: value for argument_name, value in typed.items() if value is not None}
    with option_names(name):
        built: Randomizer = getattr(randomizers, class_name)(**present)
    return built


@contextmanager
def option_names(name: str) -> Iterator[None]:
    """Write errors about the randomizer called `name` with the options behind its arguments."""
    _, options = CLASSES.get(name, ("", {}))
    try:
        yield
    except MetricShuffleError as error:
        raise error.renamed(
            **{own_name: option.replace("-", "_") for own_name, option in options.items()}
        ) from None


def _check_largest_loss(rate: float, distances: Matrix) -> None:
    """Raise for a rate whose loss at the largest distance is as good as infinite."""
    largest = float(distances.distances.max())
    if not rate * largest <= MAX_LOCAL_EPSILON:
        raise InputError(
            f"{argument('rate')} times the largest distance, {largest:g}, is at most "
            f"{MAX_LOCAL_EPSILON:g}, got {rate * largest:g}; lower {argument('rate')}."
        )


def line_distances(low: float, high: float, steps: int) -> Matrix:
    """Distances between the ends of an interval and the points that cut it into equal steps."""
    if not low < high:
        raise InputError(
            f"{argument('low')} must be below {argument('high')}, got {low:g} and {high:g}."
        )
    if steps >= MAX_POINTS:
        raise InputError(
            f"{argument('steps')} must be at most {MAX_POINTS - 1} for points with a table of "
            f"distances, got {steps:,}; take fewer points."
        )
    places = np.arange(steps + 1)
    return Matrix.known(np.abs(np.subtract.outer(places, places)) * ((high - low) / steps))

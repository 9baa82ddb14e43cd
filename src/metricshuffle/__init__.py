"""Metric differential privacy in the shuffle model, with guarantees that are true."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricshuffle.errors import (
    BatchTooSmall,
    ConditionError,
    DomainError,
    InputError,
    MetricShuffleError,
    MissingExtra,
    NotCertified,
    PlanError,
)

if TYPE_CHECKING:
    from metricshuffle import randomizers as randomizers
    from metricshuffle.planning.amplify import Amplification, amplify
    from metricshuffle.planning.candidate import Candidate
    from metricshuffle.planning.histogram_plan import HistogramPlan, plan_histogram
    from metricshuffle.planning.inverse import plan_for_error
    from metricshuffle.planning.plan import Plan, plan
    from metricshuffle.planning.real_mean import MeanEstimate, RealMeanPlan, plan_real_mean
    from metricshuffle.planning.release import Release
    from metricshuffle.planning.simulate import Simulation, simulate
    from metricshuffle.planning.target import Target
    from metricshuffle.privacy import Band, Guarantee, LowerProfile, PrivacyProfile, Trust
    from metricshuffle.protocols import Centroid, Mean, Reports, Shuffled, Sum
    from metricshuffle.protocols.histogram import FrequencyEstimate, Histogram, frequency_estimate
    from metricshuffle.randomness import Randomness
    from metricshuffle.spaces import Categories, Grid, Integers, Interval, Space

__version__ = "0.1.0"

__all__ = [
    "Amplification", "Band", "BatchTooSmall", "Candidate", "Categories", "Centroid", "ConditionError", "DomainError",
    "FrequencyEstimate", "Grid", "Guarantee", "Histogram", "HistogramPlan", "InputError", "Integers", "Interval",
    "LowerProfile", "Mean", "MeanEstimate", "MetricShuffleError", "MissingExtra", "NotCertified", "Plan", "PlanError",
    "PrivacyProfile", "Randomness", "RealMeanPlan", "Release", "Reports", "Shuffled", "Simulation", "Space", "Sum",
    "Target", "Trust", "amplify", "frequency_estimate", "plan", "plan_for_error", "plan_histogram", "plan_real_mean",
    "simulate",
]  # fmt: skip

# Where a name lives; imported when first asked for, so that `metricshuffle --help` does not wait for numpy.
_HOMES = {
    "metricshuffle.planning": (
        "Amplification", "Candidate", "Plan", "Release", "Simulation", "Target", "amplify", "plan", "plan_for_error", "simulate",
    ),
    "metricshuffle.planning.histogram_plan": ("HistogramPlan", "plan_histogram"),
    "metricshuffle.planning.real_mean": ("MeanEstimate", "RealMeanPlan", "plan_real_mean"),
    "metricshuffle.privacy": ("Band", "Guarantee", "LowerProfile", "PrivacyProfile", "Trust"),
    "metricshuffle.protocols": ("Centroid", "Mean", "Reports", "Shuffled", "Sum"),
    "metricshuffle.protocols.histogram": ("FrequencyEstimate", "Histogram", "frequency_estimate"),
    "metricshuffle.randomness": ("Randomness",),
    "metricshuffle.spaces": ("Categories", "Grid", "Integers", "Interval", "Space"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "randomizers":
        return import_module("metricshuffle.randomizers")
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

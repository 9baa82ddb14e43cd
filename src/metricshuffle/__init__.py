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
    from metricshuffle.accounting.items.user_level import group_delta, rate_for_changes
    from metricshuffle.amplification.amplify import Amplification, amplify
    from metricshuffle.planning.candidate import Candidate
    from metricshuffle.planning.histogram_plan import HistogramPlan, plan_histogram
    from metricshuffle.planning.inverse import plan_for_error
    from metricshuffle.planning.plan import Plan, plan
    from metricshuffle.planning.real_mean import MeanEstimate, RealMeanPlan, plan_real_mean
    from metricshuffle.planning.release import Release
    from metricshuffle.planning.simulate import Simulation, simulate
    from metricshuffle.planning.user_compare import UserComparison, compare_users
    from metricshuffle.planning.user_compare_linear import LinearComparison, compare_linear
    from metricshuffle.planning.user_plan import UserPlan
    from metricshuffle.planning.user_release import UserRelease
    from metricshuffle.planning.user_simulation import UserSimulation
    from metricshuffle.privacy import Band, Guarantee, LowerProfile, PrivacyProfile, Trust
    from metricshuffle.privacy.target import Target
    from metricshuffle.protocols import Centroid, Mean, Reports, Shuffled, Sum
    from metricshuffle.protocols.histogram import FrequencyEstimate, Histogram, frequency_estimate
    from metricshuffle.protocols.user_queries import UserHistogram, UserLinearQuery
    from metricshuffle.randomness import Randomness
    from metricshuffle.spaces import (
        Categories,
        Circle,
        Clustered,
        Grid,
        Integers,
        Interval,
        Matrix,
        NestedSquares,
        Space,
        Tree,
        Users,
        earth_mover,
        nested_squares,
        nested_squares_on_map,
        users_of,
    )

__version__ = "0.1.0"

__all__ = [
    "Amplification", "Band", "BatchTooSmall", "Candidate", "Categories", "Centroid", "Circle", "Clustered",
    "ConditionError", "DomainError", "FrequencyEstimate", "Grid", "Guarantee", "Histogram", "HistogramPlan", "InputError",
    "Integers", "Interval", "LinearComparison", "LowerProfile", "Matrix", "Mean", "MeanEstimate", "MetricShuffleError",
    "MissingExtra", "NestedSquares", "NotCertified", "Plan", "PlanError", "PrivacyProfile", "Randomness", "RealMeanPlan",
    "Release", "Reports", "Shuffled", "Simulation", "Space", "Sum", "Target", "Tree", "Trust", "UserComparison",
    "UserHistogram", "UserLinearQuery", "UserPlan", "UserRelease", "UserSimulation", "Users", "amplify", "compare_linear",
    "compare_users", "earth_mover", "frequency_estimate", "group_delta", "nested_squares", "nested_squares_on_map", "plan",
    "plan_for_error", "plan_histogram", "plan_real_mean", "rate_for_changes", "simulate", "users_of",
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
    "metricshuffle.accounting.items.user_level": ("group_delta", "rate_for_changes"),
    "metricshuffle.planning.user_compare": ("UserComparison", "compare_users"),
    "metricshuffle.planning.user_compare_linear": ("LinearComparison", "compare_linear"),
    "metricshuffle.planning.user_plan": ("UserPlan",),
    "metricshuffle.planning.user_release": ("UserRelease",),
    "metricshuffle.planning.user_simulation": ("UserSimulation",),
    "metricshuffle.protocols.user_queries": ("UserHistogram", "UserLinearQuery"),
    "metricshuffle.spaces": (
        "Categories", "Circle", "Clustered", "Grid", "Integers", "Interval", "Matrix", "NestedSquares", "Space",
        "Tree", "Users", "earth_mover", "nested_squares", "nested_squares_on_map", "users_of",
    ),
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

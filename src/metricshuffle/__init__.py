"""Metric differential privacy in the shuffle model, with guarantees that are true."""

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
from metricshuffle.planning import Candidate, Plan, Release, Simulation, Target, plan, simulate
from metricshuffle.privacy import Band, Guarantee, LowerProfile, PrivacyProfile, Trust
from metricshuffle.protocols import Centroid, Mean, Reports, Shuffled, Sum
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Grid, Integers, Interval, Space

__version__ = "0.1.0"

__all__ = [
    "Band", "BatchTooSmall", "Candidate", "Categories", "Centroid", "ConditionError", "DomainError", "Grid", "Guarantee",
    "InputError", "Integers", "Interval", "LowerProfile", "Mean", "MetricShuffleError", "MissingExtra", "NotCertified",
    "Plan", "PlanError", "PrivacyProfile", "Randomness", "Release", "Reports", "Shuffled", "Simulation", "Space", "Sum",
    "Target", "Trust", "plan", "simulate",
]  # fmt: skip

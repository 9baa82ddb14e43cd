"""Values and the distances between them: Domain + Metric = Space."""

from metricshuffle.spaces.combinators import Maximum, Scaled, Threshold
from metricshuffle.spaces.domains import AnyDomain, Categories, Domain, Integers, Interval
from metricshuffle.spaces.geographic import Box
from metricshuffle.spaces.grid import Grid
from metricshuffle.spaces.matrix import Matrix, closure
from metricshuffle.spaces.metrics import Absolute, AnyMetric, Discrete, Euclidean, Haversine, Manhattan, Metric
from metricshuffle.spaces.space import Space
from metricshuffle.spaces.tree import Tree

__all__ = [
    "Absolute",
    "AnyDomain",
    "AnyMetric",
    "Box",
    "Categories",
    "Discrete",
    "Domain",
    "Euclidean",
    "Grid",
    "Haversine",
    "Integers",
    "Interval",
    "Manhattan",
    "Matrix",
    "Maximum",
    "Metric",
    "Scaled",
    "Space",
    "Threshold",
    "Tree",
    "closure",
]

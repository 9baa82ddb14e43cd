"""Values and the distances between them: Domain + Metric = Space."""

from metricshuffle.spaces.circle import Circle
from metricshuffle.spaces.clusters import Clustered
from metricshuffle.spaces.combinators import Maximum, Scaled, Threshold
from metricshuffle.spaces.domains import AnyDomain, Categories, Domain, Integers, Interval
from metricshuffle.spaces.earth_mover import earth_mover
from metricshuffle.spaces.earth_mover_formulas import EarthMoversDistance, line_distance
from metricshuffle.spaces.geographic_box import Box
from metricshuffle.spaces.grid import Grid
from metricshuffle.spaces.matrix import Matrix, closure
from metricshuffle.spaces.metrics import Absolute, AnyMetric, Discrete, Euclidean, Haversine, Manhattan, Metric
from metricshuffle.spaces.nested_squares import NestedSquares, nested_squares, nested_squares_on_map
from metricshuffle.spaces.places import Places
from metricshuffle.spaces.space import Space
from metricshuffle.spaces.transport_solver import assignment, transport
from metricshuffle.spaces.tree import Tree
from metricshuffle.spaces.tree_embedding import TreeEmbedding, embedding
from metricshuffle.spaces.users import Users, users_of

__all__ = [
    "Absolute",
    "AnyDomain",
    "AnyMetric",
    "Box",
    "Categories",
    "Circle",
    "Clustered",
    "Discrete",
    "Domain",
    "EarthMoversDistance",
    "Euclidean",
    "Grid",
    "Haversine",
    "Integers",
    "Interval",
    "Manhattan",
    "Matrix",
    "Maximum",
    "Metric",
    "NestedSquares",
    "Places",
    "Scaled",
    "Space",
    "Threshold",
    "Tree",
    "TreeEmbedding",
    "Users",
    "assignment",
    "closure",
    "earth_mover",
    "embedding",
    "line_distance",
    "nested_squares",
    "nested_squares_on_map",
    "transport",
    "users_of",
]

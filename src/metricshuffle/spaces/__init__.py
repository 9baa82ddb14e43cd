"""Values and the distances between them: a domain with a metric is a space."""

from metricshuffle.spaces.chord import Chord
from metricshuffle.spaces.combinators import Maximum, Scaled, Threshold
from metricshuffle.spaces.distance_matrix import Matrix, closure
from metricshuffle.spaces.domains import AnyDomain, Categories, Domain, Integers, Interval
from metricshuffle.spaces.earth_mover import earth_mover
from metricshuffle.spaces.earth_mover_formulas import EarthMoversDistance, line_distance
from metricshuffle.spaces.geographic_box import Box
from metricshuffle.spaces.grid import Grid
from metricshuffle.spaces.labelled_numbers import LabelledDistance, LabelledNumbers
from metricshuffle.spaces.labelled_points import GreatCircle, LabelledPoints, Vectors
from metricshuffle.spaces.metrics import (
    Absolute,
    AnyMetric,
    Circle,
    Discrete,
    Euclidean,
    Haversine,
    Manhattan,
    Metric,
)
from metricshuffle.spaces.nested_squares import NestedSquares, nested_squares, nested_squares_on_map
from metricshuffle.spaces.person_records import (
    KeyedDistance,
    KeyedNumbers,
    LabelSets,
    NumberRows,
    RowDistance,
    SetDistance,
)
from metricshuffle.spaces.places import Places
from metricshuffle.spaces.space import Space
from metricshuffle.spaces.transport_solver import assignment, transport
from metricshuffle.spaces.tree import Clustered, Tree
from metricshuffle.spaces.tree_embedding import TreeEmbedding, embedding
from metricshuffle.spaces.users import Users, users_of
from metricshuffle.spaces.zone_pairs import ChordSum, ZonePairs
from metricshuffle.spaces.zones import Zones

__all__ = [
    "Absolute",
    "AnyDomain",
    "AnyMetric",
    "Box",
    "Categories",
    "Chord",
    "ChordSum",
    "Circle",
    "Clustered",
    "Discrete",
    "Domain",
    "EarthMoversDistance",
    "Euclidean",
    "GreatCircle",
    "Grid",
    "Haversine",
    "Integers",
    "Interval",
    "KeyedDistance",
    "KeyedNumbers",
    "LabelSets",
    "LabelledDistance",
    "LabelledNumbers",
    "LabelledPoints",
    "Manhattan",
    "Matrix",
    "Maximum",
    "Metric",
    "NestedSquares",
    "NumberRows",
    "Places",
    "RowDistance",
    "Scaled",
    "SetDistance",
    "Space",
    "Threshold",
    "Tree",
    "TreeEmbedding",
    "Users",
    "Vectors",
    "ZonePairs",
    "Zones",
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

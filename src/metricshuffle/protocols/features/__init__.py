"""Feature sets: whole-number functions of a value whose noisy sums estimate a histogram.

There is one file per kind of space; `readings` turns sums into estimates, and `lattice` has equally
spaced points.
"""

from metricshuffle.protocols.features.feature_set import (
    AnyFeatures,
    Blur,
    Cumulative,
    Features,
    space_of,
)
from metricshuffle.protocols.features.flow_features import FlowCells, FlowHats
from metricshuffle.protocols.features.grid_features import Cells, Hats, ShiftedBoxes
from metricshuffle.protocols.features.group_features import GroupFeatures
from metricshuffle.protocols.features.lattice import Lattice
from metricshuffle.protocols.features.line_answers import LineAnswers
from metricshuffle.protocols.features.line_features import Ramps
from metricshuffle.protocols.features.query_features import QueryFeatures, TableColumns
from metricshuffle.protocols.features.readings import Readings
from metricshuffle.protocols.features.record_features import (
    RecordFeatures,
    RowColumns,
    SetMembers,
)
from metricshuffle.protocols.features.tree_features import Edges
from metricshuffle.protocols.features.tree_levels import TreeLevels
from metricshuffle.protocols.features.zone_features import ZoneCells, ZoneHats

__all__ = [
    "AnyFeatures",
    "Blur",
    "Cells",
    "Cumulative",
    "Edges",
    "Features",
    "FlowCells",
    "FlowHats",
    "GroupFeatures",
    "Hats",
    "Lattice",
    "LineAnswers",
    "QueryFeatures",
    "Ramps",
    "Readings",
    "RecordFeatures",
    "RowColumns",
    "SetMembers",
    "ShiftedBoxes",
    "TableColumns",
    "TreeLevels",
    "ZoneCells",
    "ZoneHats",
    "space_of",
]

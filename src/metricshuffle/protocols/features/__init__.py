"""Feature sets, a file for each kind of space."""

from metricshuffle.protocols.features.feature_set import AnyFeatures, Blur, Cumulative, Features
from metricshuffle.protocols.features.grid_features import Cells, Hats, ShiftedBoxes
from metricshuffle.protocols.features.lattice import Lattice
from metricshuffle.protocols.features.line_features import Ramps
from metricshuffle.protocols.features.query_space import space_of
from metricshuffle.protocols.features.readings import Readings
from metricshuffle.protocols.features.tree_features import Edges

__all__ = [
    "AnyFeatures",
    "Blur",
    "Cells",
    "Cumulative",
    "Edges",
    "Features",
    "Hats",
    "Lattice",
    "Ramps",
    "Readings",
    "ShiftedBoxes",
    "space_of",
]

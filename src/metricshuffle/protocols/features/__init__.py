"""Feature sets, a file for each kind of space."""

from metricshuffle.protocols.features.base import AnyFeatures, Blur, Cumulative, Features, blurred, blurred_variances
from metricshuffle.protocols.features.grid import Cells, Hats, ShiftedBoxes
from metricshuffle.protocols.features.lattice import Lattice
from metricshuffle.protocols.features.line import Ramps
from metricshuffle.protocols.features.question import space_of
from metricshuffle.protocols.features.tree import Edges

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
    "ShiftedBoxes",
    "blurred",
    "blurred_variances",
    "space_of",
]

"""Figure 24 of Athanasiou25: Euclidean error of a centroid, coarse grid."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import location_item
from metricshuffle.papers.shuffler_location import Location

ITEM = location_item("shuffler-figure-24", "Figure 24", Location(0.2, 500, 600), "Euclidean error")

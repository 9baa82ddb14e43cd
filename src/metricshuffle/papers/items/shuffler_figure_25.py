"""Figure 25 of Athanasiou25: Euclidean error of a centroid, fine grid."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import location_item
from metricshuffle.papers.shuffler_location import Location

ITEM = location_item("shuffler-figure-25", "Figure 25", Location(0.3, 1500, 500), "Euclidean error")

"""Figure 26 of Athanasiou25: Euclidean error of a centroid, dispersed people."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import location_item
from metricshuffle.papers.shuffler_location import Location

ITEM = location_item("shuffler-figure-26", "Figure 26", Location(0.2, 1000, 300), "Euclidean error", dispersed=True)

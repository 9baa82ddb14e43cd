"""Figure 29 of Athanasiou25: Euclidean error of a centroid, dispersed people."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import location_item
from metricshuffle.papers.shuffler_location import Location

ITEM = location_item("shuffler-figure-29", "Figure 29", Location(0.15, 1000, 600), "Euclidean error", dispersed=True)

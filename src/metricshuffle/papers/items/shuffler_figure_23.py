"""Figure 23 of Athanasiou25: Euclidean error of a centroid."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import location_item
from metricshuffle.papers.shuffler_location import Location

ITEM = location_item("shuffler-figure-23", "Figure 23", Location(0.1, 1000, 600), "Euclidean error")

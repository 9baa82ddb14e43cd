"""Figure 27 of Athanasiou25: Manhattan error of a centroid."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import location_item
from metricshuffle.papers.shuffler_location import Location

ITEM = location_item("shuffler-figure-27", "Figure 27", Location(0.1, 1000, 600), "Manhattan error")

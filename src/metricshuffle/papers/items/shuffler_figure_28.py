"""Figure 28 of Athanasiou25: Manhattan error of a centroid, dispersed people."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import location_item
from metricshuffle.papers.shuffler_location import Location

ITEM = location_item("shuffler-figure-28", "Figure 28", Location(0.2, 1000, 600), "Manhattan error", dispersed=True)

"""Figure 19 of Athanasiou25: relative error on numbers."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import numbers_item

ITEM = numbers_item("shuffler-figure-19", "Figure 19", 0.1, 1e-4, "relative error")

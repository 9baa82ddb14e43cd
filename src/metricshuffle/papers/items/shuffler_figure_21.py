"""Figure 21 of Athanasiou25: mean absolute error on numbers, as boxes."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import numbers_item

ITEM = numbers_item("shuffler-figure-21", "Figure 21", 0.2, 1e-4, "mean absolute error", boxes=True)

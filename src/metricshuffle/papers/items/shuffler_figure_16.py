"""Figure 16 of Athanasiou25: mean absolute error on numbers."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import numbers_item

ITEM = numbers_item("shuffler-figure-16", "Figure 16", 0.2, 1e-3, "mean absolute error")

"""Figure 17 of Athanasiou25: mean absolute error on numbers."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import numbers_item

ITEM = numbers_item("shuffler-figure-17", "Figure 17", 0.3, 1e-4, "mean absolute error")

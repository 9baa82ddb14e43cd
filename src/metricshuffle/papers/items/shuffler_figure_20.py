"""Figure 20 of Athanasiou25: mean absolute error on numbers."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import numbers_item

ITEM = numbers_item("shuffler-figure-20", "Figure 20", 0.5, 1e-2, "mean absolute error")

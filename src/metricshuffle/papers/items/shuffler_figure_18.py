"""Figure 18 of Athanasiou25: root mean square error on numbers."""

from __future__ import annotations

from metricshuffle.papers.shuffler_figures import numbers_item

ITEM = numbers_item("shuffler-figure-18", "Figure 18", 0.2, 1e-4, "root mean square error")

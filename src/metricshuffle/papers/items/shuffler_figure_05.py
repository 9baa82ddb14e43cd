"""Figure 5 of Athanasiou25: error of a centroid, as boxes, and the users that RR-Shuffle needs."""

from __future__ import annotations

from metricshuffle.papers.reproduction import Row, Settings, judged, published_value
from metricshuffle.papers.shuffler_figures import location_item
from metricshuffle.papers.shuffler_location import DELTA, Location
from metricshuffle.papers.shuffler_mechanisms import fewest_users

WHERE = Location(0.15, 1000, 600)
NAME = "fewest users of RR-Shuffle, epsilon=0.15"


def more(settings: Settings) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    published = published_value("shuffler", "Section 6.3, Figure 5", NAME)
    fewest = fewest_users(WHERE.share, 0.5 * DELTA)
    row = Row(NAME, published, float(fewest), verdict=judged(published, fewest), note="Theorem 3.1 with half of delta on each axis")
    return (f"The text says that RR-Shuffle needs {published:g} users here; by its own theorem it needs {fewest:,}.",), (row,)


ITEM = location_item("shuffler-figure-5", "Figure 5", WHERE, "Euclidean error", boxes=True, more=more)

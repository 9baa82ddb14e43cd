"""Figures 4 and 15 of Athanasiou25: error against users on numbers, and what the text says about it."""

from __future__ import annotations

from fractions import Fraction

from metricshuffle.papers.reproduction import Row, Settings, judged, published_value
from metricshuffle.papers.shuffler_figures import numbers_item
from metricshuffle.papers.shuffler_mechanisms import fewest_users, geometric, published_response

EPSILON, DELTA = 0.1, 1e-4
TABLE = "Section 6.2, Figure 4"


def worse_than_local(users: int) -> bool:
    """Whether RR-Shuffle, by the paper's formula, errs more than Geo-Local."""
    response = published_response(EPSILON, users, DELTA)
    return response is not None and response.mean_error(users) > geometric("Geo-Local", Fraction(1), EPSILON).mean_error(users)


def more(settings: Settings) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    fewest = fewest_users(EPSILON, DELTA)
    crossing = fewest
    while worse_than_local(crossing + 1):
        crossing += 1
    names = ("fewest users of RR-Shuffle, epsilon=0.1", "RR-Shuffle is worse than Geo-Local up to n")
    notes = (
        "Theorem 3.1: as many random bits as it asks for must fit into 1000 n bits",
        "by the expected errors of the paper's own formulas",
    )
    rows = []
    for name, found, note in zip(names, (fewest, crossing), notes, strict=True):
        published = published_value("shuffler", TABLE, name)
        rows.append(Row(name, published, float(found), verdict=judged(published, found), note=note))
    return (
        f"The text says that RR-Shuffle needs {rows[0].published:g} users and is worse than Geo-Local up to {rows[1].published:g}; by its "
        f"own theorem it needs {fewest} and is worse up to {crossing}.",
    ), tuple(rows)


ITEM = numbers_item("shuffler-figure-4", "Figures 4 and 15", EPSILON, DELTA, "mean absolute error", more=more)

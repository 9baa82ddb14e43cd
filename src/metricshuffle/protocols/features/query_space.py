"""The finite space whose points a question counts."""

from __future__ import annotations

from metricshuffle.errors import InputError
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.spaces import Absolute, Categories, Grid, Integers, Scaled, Space


def space_of(query: Query) -> Space:
    """The points in the order of the query's codes, with its distances.

    Bins of a line are the whole numbers 0, 1, ..., a step apart; cells, labels and users' items are what they are.
    """
    if isinstance(query, UserHistogram):
        return query.people.items_in
    if not isinstance(query, Histogram):
        raise InputError(f"only histograms and users' histograms count the points of a finite space, not a {query.kind}.")
    if isinstance(query.domain, Grid | Categories):
        return Space.of(query.domain)
    bins = Integers(0, query.cells - 1, query.unit)
    return Space(bins, Absolute() if query.step == 1.0 else Scaled(Absolute(), query.step), query.unit)

"""What is asked of the people."""

from metricshuffle.queries.base import Answer, AnyQuery, Estimate, Inputs, Query
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.numbers import Mean, Sum
from metricshuffle.queries.places import Centroid
from metricshuffle.queries.table import Table
from metricshuffle.queries.user_items import UserHistogram, UserLinearQuery, UserQuery

__all__ = [
    "Answer",
    "AnyQuery",
    "Centroid",
    "Estimate",
    "Histogram",
    "Inputs",
    "Mean",
    "Query",
    "Sum",
    "Table",
    "UserHistogram",
    "UserLinearQuery",
    "UserQuery",
]

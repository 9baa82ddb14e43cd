"""What is asked of the people."""

from metricshuffle.queries.centroid import Centroid
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.mean_and_sum import Mean, Sum
from metricshuffle.queries.query import Answer, AnyQuery, Estimate, Inputs, Query
from metricshuffle.queries.result_table import Table
from metricshuffle.queries.user_queries import UserHistogram, UserLinearQuery, UserQuery

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

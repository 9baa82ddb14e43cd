"""Queries: the questions that can be asked about people's values."""

from metricshuffle.queries.by_group import ByGroup
from metricshuffle.queries.centroid import Centroid
from metricshuffle.queries.column_means import Means
from metricshuffle.queries.flows import Flows
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.keyed_means import KeyValues
from metricshuffle.queries.mean_and_sum import Mean, Sum
from metricshuffle.queries.quantiles import Quantiles
from metricshuffle.queries.query import Answer, AnyQuery, Estimate, Inputs, Query
from metricshuffle.queries.result_table import Table
from metricshuffle.queries.sets import Sets
from metricshuffle.queries.share_above import ShareAbove
from metricshuffle.queries.spread import Spread
from metricshuffle.queries.user_queries import UserHistogram, UserLinearQuery, UserQuery

__all__ = [
    "Answer",
    "AnyQuery",
    "ByGroup",
    "Centroid",
    "Estimate",
    "Flows",
    "Histogram",
    "Inputs",
    "KeyValues",
    "Mean",
    "Means",
    "Quantiles",
    "Query",
    "Sets",
    "ShareAbove",
    "Spread",
    "Sum",
    "Table",
    "UserHistogram",
    "UserLinearQuery",
    "UserQuery",
]

"""values -randomize-> Reports -shuffle-> Shuffled -estimate-> Release."""

from metricshuffle.protocols.base import Reports, Shuffled
from metricshuffle.protocols.queries import Centroid, Mean, Query, Sum

__all__ = ["Centroid", "Mean", "Query", "Reports", "Shuffled", "Sum"]

"""Families of candidates that the planner can offer for a query, one module each."""

from metricshuffle.planning.candidates.registry import (
    Family,
    Offer,
    SkippedCandidate,
    calibrate_offers,
    family,
)

__all__ = ["Family", "Offer", "SkippedCandidate", "calibrate_offers", "family"]

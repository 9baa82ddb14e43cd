"""What can be offered for a query: one file a family of candidates."""

from metricshuffle.planning.candidates.registry import Family, Offer, SkippedCandidate, calibrate_offers, family

__all__ = ["Family", "Offer", "SkippedCandidate", "calibrate_offers", "family"]

"""What can be offered for a query: one file a family of candidates."""

from metricshuffle.planning.offers.registry import Family, NotMade, Offer, family, made

__all__ = ["Family", "NotMade", "Offer", "family", "made"]

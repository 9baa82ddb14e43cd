"""Profiles (what is hidden at which distance) and guarantees (the sentence they become)."""

from metricshuffle.privacy.guarantee import Guarantee, Protects, Trust
from metricshuffle.privacy.profile import Band, LowerProfile, PrivacyProfile, PureProfile, Shape

__all__ = ["Band", "Guarantee", "LowerProfile", "PrivacyProfile", "Protects", "PureProfile", "Shape", "Trust"]

"""Privacy profiles (delta by epsilon and distance) and the guarantees made from them."""

from metricshuffle.privacy.guarantee import Guarantee, Protects, Trust
from metricshuffle.privacy.profile import Band, LowerProfile, PrivacyProfile, PureProfile, Shape

__all__ = [
    "Band",
    "Guarantee",
    "LowerProfile",
    "PrivacyProfile",
    "Protects",
    "PureProfile",
    "Shape",
    "Trust",
]

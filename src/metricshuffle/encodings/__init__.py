"""How a report becomes messages of equal length."""

from metricshuffle.encodings.modular import Modular, modulus_for
from metricshuffle.encodings.packed import Packed
from metricshuffle.encodings.unary import ShuffledBits, Unary

__all__ = ["Modular", "Packed", "ShuffledBits", "Unary", "modulus_for"]

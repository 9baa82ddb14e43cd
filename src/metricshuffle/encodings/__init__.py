"""Encodings of a report as messages of equal length."""

from metricshuffle.encodings.modular_shares import Modular, modulus_for
from metricshuffle.encodings.packed_vectors import Packed
from metricshuffle.encodings.unary_bits import ShuffledBits, Unary

__all__ = ["Modular", "Packed", "ShuffledBits", "Unary", "modulus_for"]

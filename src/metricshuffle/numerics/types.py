"""Names of the array types.

A module whose numbers have a more specific meaning (codes, signs, weights) defines its own name for
one of these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers64 = NDArray[np.int64]
"""Signed integers: values, counts, codes, steps."""
Integers32 = NDArray[np.int32]
"""Integers of large lookup tables, where memory matters."""
Words = NDArray[np.uint64]
"""64-bit words: random words, and weights that are compared with them."""
Bits = NDArray[np.uint8]
"""Zeros and ones, one per byte."""
Mask = NDArray[np.bool_]

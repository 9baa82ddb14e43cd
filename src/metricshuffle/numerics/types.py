"""The arrays everything here is made of, named once.

A module that means something more by its numbers (codes, signs, weights) gives them a name of its own, made from one of these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers64 = NDArray[np.int64]
"""Whole numbers that can be negative: values, counts, codes, steps."""
Integers32 = NDArray[np.int32]
"""Whole numbers of which there are so many that the memory they take decides: tables to look things up in."""
Words = NDArray[np.uint64]
"""64 bits each: random words, and weights that are compared with them."""
Bits = NDArray[np.uint8]
"""Zeros and ones, one a byte."""
Mask = NDArray[np.bool_]

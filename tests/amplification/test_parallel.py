"""Laws of tagged reports."""

from __future__ import annotations

import numpy as np

from metricshuffle.amplification.random_task import random_task
from metricshuffle.randomizers import KaryRandomizedResponse


def test_weights_that_were_written_with_few_digits() -> None:
    task = KaryRandomizedResponse(3, 1.0)
    third = 0.3333333331
    rough, exact = (random_task([(weight, task)] * 3).laws[0] for weight in (third, 1.0 / 3.0))
    for name in ("mass", "a", "b", "excess"):
        np.testing.assert_allclose(getattr(rough, name), getattr(exact, name), rtol=1e-14)

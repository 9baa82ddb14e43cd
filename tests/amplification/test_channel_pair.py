"""One pair of a channel, against every data set of the others."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import every_data_set

from metricshuffle.amplification.amplify import amplify
from metricshuffle.randomizers.channel import ChannelPair


def test_the_others_need_not_hold_either_input_of_the_pair() -> None:
    apart = [[3, 1, 0], [1, 3, 0], [0, 0, 4]]  # who holds the third input hides nobody
    band = amplify(ChannelPair(np.array(apart) / 4, 0, 1), 3).delta(0.5)
    truth = max(every_data_set(apart, 0, 1, 3, Fraction(math.exp(0.5))).values())
    assert band.lower <= float(truth) * (1.0 + 1e-12) <= band.upper * (1.0 + 2e-12)
    assert band.upper == pytest.approx(float(truth))

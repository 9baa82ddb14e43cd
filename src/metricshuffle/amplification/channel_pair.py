"""One pair of inputs of a channel, while everybody else may hold any input."""

from __future__ import annotations

from typing import Any, Literal

from metricshuffle.models import FrozenModel
from metricshuffle.randomizers.channel import Channel, Stochastic
from metricshuffle.randomizers.randomizer import Pair


class ChannelPair(Channel):
    """A channel of which only the rows `first` and `second` are to be told apart: `pairs` has no other."""

    kind: Literal["channel-pair"] = "channel-pair"  # type: ignore[assignment]
    matrix: Stochastic
    first: int = 0
    second: int = 1

    def __init__(self, matrix: Any, first: int, second: int, **fields: Any) -> None:
        FrozenModel.__init__(self, matrix=matrix, first=first, second=second, **fields)

    def model_post_init(self, context: Any) -> None:
        self._checked_pair(self.first, self.second)

    def pairs(self) -> list[Pair]:
        return [(self.first, self.second)]

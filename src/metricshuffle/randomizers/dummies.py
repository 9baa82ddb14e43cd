"""Messages hidden among dummies, which do not depend on values; users or a service send them.

Only the dummies are accounted for: with m of them the accountant's number of users is m + 1, the
real message and the dummies. Other people's real messages also hide something, but less than a
dummy would, so they must not be counted as dummies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.shuffling.blanket_law import BlanketLaw
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError, argument, owner
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomness import Randomness, validate_count


@dataclass(frozen=True, eq=False)
class AmongDummies:
    """Messages of `real` among dummies of `dummy`, a channel with one row.

    `real` randomizes one person's message; a dummy is independent of everyone.
    """

    real: Channel
    dummy: Channel

    def __post_init__(self) -> None:
        if self.dummy.inputs != 1 or self.dummy.outputs != self.real.outputs:
            raise InputError(
                f"{owner('AmongDummies')}dummy must have one row and as many reports as real, got "
                f"{self.dummy.inputs} x {self.dummy.outputs} "
                f"for {self.real.outputs} reports."
            )

    @classmethod
    @theorem("Balcer20", "one bit among coins")
    def coins(cls, heads: float) -> Self:
        """A bit sent unchanged, among coins that show 1 with probability `heads`.

        Statement: a real message alone has a ratio p = e^epsilon of infinity, and a coin is a 1
        with probability heads, a 0 otherwise: w = (1 - heads, heads). For a histogram, one person's
        change moves a bit in two bins, so two such bounds are composed.
        """
        return cls(Channel(np.eye(2)), Channel([[1.0 - _inside(heads, "heads"), heads]]))

    @classmethod
    @theorem("Luo22", "values among uniform messages")
    def balls(cls, bins: int) -> Self:
        """A value in 0..bins-1 sent unchanged, among uniform ones.

        Statement: p = infinity and w = 1/bins: the pair (a, b) has mass 1/bins on both messages.
        """
        if isinstance(bins, bool) or not isinstance(bins, int) or not 2 <= bins <= 4096:
            raise InputError(
                f"{owner('AmongDummies')}bins must be a whole number in 2..4096, got {bins!r}."
            )
        return cls(Channel(np.eye(bins)), Channel(np.full((1, bins), 1.0 / bins)))

    @classmethod
    @theorem("metricshuffle", "k-ary response among uniform messages")
    def mixed(cls, options: int, flip: float) -> Self:
        """A value under k-ary randomized response, among uniform messages (mixDUMP).

        The response differs from the value with probability `flip`.

        Statement: K_a/w is (1-flip) options on a and flip options/(options-1) elsewhere.
        Conditions: 1 - flip >= 1/options, so that the true value is the likeliest report.
        """
        if options < 2 or not 1.0 - _inside(flip, "flip") >= 1.0 / options:
            raise ConditionError(
                "k-ary response among uniform messages",
                "1 - flip >= 1/options",
                f"{1.0 - flip!r} with {options} options",
            )
        rows = np.where(np.eye(options, dtype=bool), 1.0 - flip, flip / (options - 1))
        return cls(Channel(rows), Channel(np.full((1, options), 1.0 / options)))

    @classmethod
    @theorem("Cheu22", "flipped one-hot vectors among fake users")
    def fake_users(cls, options: int, flip: float) -> Self:
        """A one-hot vector of `options` bits among all-zero ones, all bits flipped at random.

        Each bit is flipped with probability `flip`.

        Statement: only bits a and b tell the two values apart; where they are (1, 0), a's law is
        (1-flip)/flip and b's flip/(1-flip) times a dummy's. The blanket is the same for every
        number of options; at most 16 of them can be listed. Vectors are coded with option 0 last.
        """
        if not 2 <= options <= 16 or not _inside(flip, "flip") < 0.5:
            raise InputError(
                f"{owner('AmongDummies')}fake users need 2..16 options and flip below 1/2, "
                f"got {options} and {flip!r}."
            )
        bits = np.arange(1 << options)[:, None] >> np.arange(options) & 1
        ones = bits.sum(axis=1)
        rows = []
        for away in (*(ones + 1 - 2 * bits[:, option] for option in range(options)), ones):
            rows.append((1.0 - flip) ** (options - away) * flip**away)
        return cls(Channel(rows[:-1]), Channel(rows[-1:]))

    def blanket(self, a: int, b: int) -> BlanketLaw:
        """Return the pair (a, b) over the law of a dummy; users = dummies + 1."""
        rows = np.vstack([self.real.rows()[[a, b]], self.dummy.rows()])
        triples, copies = np.unique(rows.T, axis=0, return_counts=True)
        nonzero = triples.any(axis=1)
        first, second, common = (triples[nonzero] * copies[nonzero, None]).T
        return BlanketLaw(common, first, second)

    def messages(self, values: object, dummies: int, randomness: Randomness) -> NDArray[Any]:
        """Return the real messages and then the dummies; shuffle them before anyone sees them."""
        real = self.real.reports(values, randomness)
        noise = self.dummy.reports(np.zeros(validate_count(dummies), dtype=np.int64), randomness)
        return np.concatenate([real, noise])

    def totals(self, messages: NDArray[Any], dummies: int) -> Floats:
        """Return unbiased estimates of the number of people with each value.

        The expected counts of the dummies are subtracted first.
        """
        counts = self.real.counts(messages) - validate_count(dummies) * self.dummy.rows()[0]
        totals: Floats = counts @ self.real.debiasing()
        return totals


def _inside(probability: float, name: str) -> float:
    if not (isinstance(probability, int | float) and 0.0 < probability < 1.0):
        raise InputError(
            f"{owner('AmongDummies')}{argument(name)} must be a probability strictly "
            f"between 0 and 1, got {probability!r}."
        )
    return float(probability)

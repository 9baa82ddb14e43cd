"""Candidate for a histogram from a supplied randomizer, which is accounted for, not calibrated."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.rounding import format_epsilon
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.setting import OWN_RANDOMIZER, Setting
from metricshuffle.protocols.frequencies import Frequencies, shuffled_profile
from metricshuffle.queries.histogram import Histogram
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of
from metricshuffle.spaces import Categories


@family
def own_randomizer(setting: Setting) -> Iterator[Offer]:
    """Offer the setting's own randomizer."""
    if setting.randomizer is not None:
        yield Offer(OWN_RANDOMIZER, None, partial(account_randomizer, setting, setting.randomizer))


def account_randomizer(setting: Setting, randomizer: Randomizer) -> Candidate:
    """Return the candidate if the randomizer fits the query and meets the target.

    One report may meet the target alone, or shuffled with the other honest reports.
    """
    query = setting.query
    if not isinstance(query, Histogram):
        raise InputError(f"a custom randomizer needs a histogram, got a {query.kind}.")
    if (
        isinstance(query.domain, Categories)
        and has_law_of(randomizer, Channel)
        and randomizer.distances is not None
    ):
        randomizer = Channel(
            randomizer.matrix, distances=1.0 - np.eye(randomizer.inputs)
        )  # a histogram of labels protects any two labels
    step = query.step if isinstance(randomizer, BoundedGeometric) else 1.0
    shuffled, alone = (
        Frequencies(name=OWN_RANDOMIZER, trusted=who, step=step, randomizer=randomizer)
        for who in ("shuffler", "nobody")
    )
    shuffled.check(query)
    if alone.account(query, setting.target, 1, setting.rounds).kept:
        return candidate(
            setting, alone, gain="It keeps the target alone, with nobody to hide among."
        )
    if setting.trusted != "nobody":
        account = shuffled.account(query, setting.target, setting.honest, setting.rounds)
        if account.kept:
            return candidate(
                setting, shuffled, account, gain=f"Hidden among {setting.honest:,} honest reports."
            )
    promise = shuffled.promise(query, setting.target.for_each_of(setting.rounds))
    epsilon = (
        shuffled_profile(randomizer, setting.honest).epsilon(promise.delta, promise.distance)
        * setting.rounds
    )
    raise NotCertified(
        f"this randomizer does not keep the target: among {setting.honest:,} honest "
        f"reports it has epsilon {format_epsilon(epsilon)} at the distance, or too large "
        "an epsilon for nearer values; allow a larger epsilon, or solve for another one."
    )

"""Exact epsilons of every protocol when an assumption of its guarantee fails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Self

from metricshuffle.accounting.sums.split_and_mix import MIN_USERS, SplitAndMix, security_bits
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.numerics.rounding import format_distance, round_up
from metricshuffle.planning import Candidate, Plan
from metricshuffle.privacy.guarantee import Guarantee
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import Frequencies, has_metric
from metricshuffle.protocols.protocol import Protocol
from metricshuffle.protocols.sums import Sums
from metricshuffle.spaces import Categories
from metricshuffle.tasks.task import Task

HONEST_SHARES = (0.8, 0.5)
DISTANCE_FACTORS = (2, 5)
RELATIVE_MARGINS = (0.0, 1e-6, 1e-3)
"""Relative margins by which an epsilon is raised, in turn, until an account with it succeeds.

The account of another epsilon may use another bound, which may need slightly more than the first.
"""
TRUSTED_MIXERS = ("shuffler", "aggregator")
"""Trusted parties that combine many reports; then the guarantee depends on honest people."""


@dataclass(frozen=True)
class Consequence:
    """One failed assumption, and the epsilon of each protocol then (inf: none is certified)."""

    group: str
    situation: str
    epsilons: tuple[float, ...]
    noise_alone: tuple[float, ...]
    """`epsilons`, but infinite values are replaced by those of perfectly mixed shares."""
    planned: bool = False


def consequences(*rivals: ProtocolReview) -> list[Consequence]:
    """Rows: as planned, the trusted party colludes, fewer people are honest, a larger move.

    All `rivals` must be protocols of one plan.
    """
    source = rivals[0].asked
    trusted = rivals[0].protocol.trusted
    counts_on_honest = rivals[0].protocol.counts_on_honest
    target = source.target
    query = source.query
    unit = f" {query.unit}" if query.unit else ""
    moving = query.diameter > target.distance * (1.0 + 1e-9)

    def row(
        group: str, situation: str, honest: int, distance: float, planned: bool = False
    ) -> Consequence:
        epsilons = tuple(protocol.epsilon(honest, distance) for protocol in rivals)
        noise = tuple(
            protocol.noise_alone(honest, distance, left)
            for protocol, left in zip(rivals, epsilons, strict=True)
        )
        return Consequence(group, situation, epsilons, noise, planned)

    counted = [f"{100 * source.honest // source.users}% honest"] if counts_on_honest else []
    moved = [
        "any other label"
        if isinstance(query.values_in, Categories) and query.items is None
        else f"a move of {format_distance(target.distance)}{unit}"
    ]
    rows = [
        row("As planned", ", ".join(counted + moved), source.honest, target.distance, planned=True)
    ]
    if trusted != "nobody":
        alone = tuple(rival.alone.epsilon for rival in rivals)
        seen = (
            "every raw value is seen"
            if trusted == "curator"
            else "with the analyst: every report is seen by itself"
        )
        rows.append(Consequence(f"The {trusted} colludes", seen, alone, alone))
    for share in HONEST_SHARES if counts_on_honest else ():
        honest = math.floor(share * source.users)
        if 1 <= honest < source.honest:
            rows.append(
                row(
                    "Users drop out or collude",
                    f"{share:.0%} honest ({honest:,} of {source.users:,})",
                    honest,
                    target.distance,
                )
            )
    for times in DISTANCE_FACTORS:
        farther_distance = times * target.distance
        if farther_distance < query.diameter:
            rows.append(
                row(
                    "Someone moves farther",
                    f"{times} times as far: {format_distance(farther_distance)}{unit}",
                    source.honest,
                    farther_distance,
                )
            )
    if moving:
        across = f"from one end to the other: {format_distance(query.diameter)}{unit}"
        rows.append(row("Someone moves farther", across, source.honest, query.diameter))
    return rows


class ProtocolReview:
    """Epsilons of a protocol for other distances and numbers of people; results are cached.

    `alone` is the guarantee of one report by itself.
    """

    def __init__(self, source: Plan | Task, protocol: Protocol, alone: Guarantee) -> None:
        self.asked = source
        self.protocol = protocol
        self.alone = alone
        self._sums: dict[tuple[int, bool], PrivacyProfile] = {}
        self._epsilons: dict[tuple[int, float, bool], float] = {}

    @classmethod
    def of(cls, plan: Plan, candidate: Candidate) -> Self:
        """Review a candidate whose mechanism is available."""
        if candidate.mechanism is None:
            raise InputError(
                f"failure scenarios need the mechanism of {candidate.protocol}, which a saved "
                "plan stores for its chosen candidate only; plan again."
            )
        return cls(plan, candidate.mechanism, candidate.fallback)

    @cached_property
    def is_uniform_metric(self) -> bool:
        """Whether epsilon is the same for all pairs of values, however far apart they are."""
        return (
            isinstance(self.protocol, Frequencies)
            and self.asked.query.items is None
            and not has_metric(self.protocol.randomizer)
        )

    def epsilon(self, honest: int, distance: float, *, mixing: bool = True) -> float:
        """Least certified epsilon over all rounds for moves of one person up to `distance`.

        It is inf if none is certified. If `mixing` is false, shares count as perfectly mixed.
        """
        key = (honest, self.asked.target.distance if self.is_uniform_metric else distance, mixing)
        if key not in self._epsilons:
            try:
                self._epsilons[key] = self._least_epsilon(*key)
            except (ConditionError, NotCertified, InputError):
                self._epsilons[key] = math.inf
        return self._epsilons[key]

    def _least_epsilon(self, honest: int, distance: float, mixing: bool) -> float:
        if isinstance(self.protocol, Sums) and self.protocol.trusted in TRUSTED_MIXERS:
            return self._epsilon_of_sums(self.protocol, honest, distance, mixing=mixing)
        return self._epsilon_by_account(honest, distance, mixing=mixing)

    def noise_alone(self, honest: int, distance: float, epsilon: float) -> float:
        """Epsilon as if shares were mixed perfectly; computed only if `epsilon` is infinite."""
        return epsilon if math.isfinite(epsilon) else self.epsilon(honest, distance, mixing=False)

    def _epsilon_of_sums(
        self, protocol: Sums, honest: int, distance: float, *, mixing: bool
    ) -> float:
        """Epsilon by the exact law of the honest people's noise, padded or not."""
        profile = self._sums.get((honest, mixing))
        if profile is None:
            profile = self._sums[honest, mixing] = honest_sum_profile(
                self.asked, protocol, honest, mixing=mixing
            )
        moved: Target = self.asked.target.model_copy(update={"distance": distance})
        steps = moved.in_steps(protocol.step).distance
        protocol.check_bits(honest, steps)
        return profile.epsilon(moved.delta, steps)

    def _epsilon_by_account(self, honest: int, distance: float, *, mixing: bool) -> float:
        """Epsilon from the protocol's own account of a flat target.

        A second account, with that epsilon as its target, checks it. Some protocols account for a
        single round; then the epsilon is multiplied by the number of rounds.
        """
        source = self.asked
        target = self.asked.target
        # Ask for the guaranteed epsilon at this distance: an account may use the first bound that
        # meets the requested epsilon.
        wanted = target.epsilon * (distance / target.distance if target.shape == "linear" else 1.0)
        moved = target.model_copy(update={"epsilon": wanted, "distance": distance, "shape": "flat"})
        account = self.protocol.account(source.query, moved, honest, source.rounds)
        profile = account.profile
        if not mixing:
            # A protocol without mixed shares has no term to leave out: an epsilon that was refused
            # must not be certified as that of the noise alone.
            return (
                profile.ideal.epsilon(account.target.delta, account.target.distance)
                if isinstance(profile, SplitAndMix)
                else math.inf
            )
        least_epsilon = profile.epsilon(account.target.delta, account.target.distance)
        if not math.isfinite(least_epsilon):
            return least_epsilon
        for times, hair in product(dict.fromkeys((1, source.rounds)), RELATIVE_MARGINS):
            total = round_up(least_epsilon * times * (1.0 + hair), 8)
            promise = moved.model_copy(update={"epsilon": total})
            if self.protocol.account(source.query, promise, honest, source.rounds).kept:
                return total
        return math.inf


def honest_sum_profile(
    source: Plan | Task, protocol: Sums, honest: int, *, mixing: bool = True
) -> PrivacyProfile:
    """Profile of shuffled sums, in steps, if only `honest` reports are honest.

    If `mixing` is false, shares count as perfectly mixed.
    """
    accounts = protocol.accounts(source.target, source.rounds)
    profile = accounts.total_profile(protocol.shorter.summed_profile(honest))
    if not mixing or protocol.modulus is None or protocol.trusted != "shuffler":
        return profile
    sigma = security_bits(honest, protocol.shares, protocol.modulus) if honest >= MIN_USERS else 0.0
    return SplitAndMix(profile, sigma, accounts.axes * accounts.rounds)

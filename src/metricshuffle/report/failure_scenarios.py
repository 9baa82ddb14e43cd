"""What is left of the promise when its assumptions fail, in exact numbers, for every protocol."""

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
"""Relative: the account of another epsilon may take another argument, which needs a little more than the first one said."""
TRUSTED_MIXERS = ("shuffler", "aggregator")
"""Whoever adds up many reports: then the promise counts on honest people."""


@dataclass(frozen=True)
class Consequence:
    """One thing that can go wrong, and the epsilon of each protocol then (inf: no finite epsilon is certified)."""

    group: str
    situation: str
    epsilons: tuple[float, ...]
    noise_alone: tuple[float, ...]
    """The same, but where it is infinite, without the term for the mixing of shares, which is what makes it so far out."""
    planned: bool = False


def consequences(*rivals: ProtocolReview) -> list[Consequence]:
    """Rows for: as planned, the shuffler colludes, people drop out or collude, somebody moves farther than planned.

    All rivals are protocols of one plan.
    """
    source, trusted = rivals[0].asked, rivals[0].protocol.trusted
    target, query = source.target, source.query
    unit = f" {query.unit}" if query.unit else ""
    moving = query.diameter > target.distance * (1.0 + 1e-9)

    def row(group: str, situation: str, honest: int, distance: float, planned: bool = False) -> Consequence:
        epsilons = tuple(protocol.epsilon(honest, distance) for protocol in rivals)
        noise = tuple(protocol.noise_alone(honest, distance, left) for protocol, left in zip(rivals, epsilons, strict=True))
        return Consequence(group, situation, epsilons, noise, planned)

    counted = [f"{100 * source.honest // source.users}% honest"] if trusted in TRUSTED_MIXERS else []
    moved = [
        "any other label"
        if isinstance(query.values_in, Categories) and query.items is None
        else f"a move of {format_distance(target.distance)}{unit}"
    ]
    rows = [row("As planned", ", ".join(counted + moved), source.honest, target.distance, planned=True)]
    if trusted != "nobody":
        alone = tuple(rival.alone.epsilon for rival in rivals)
        seen = "every raw value is seen" if trusted == "curator" else "with the analyst: every report is seen by itself"
        rows.append(Consequence(f"The {trusted} colludes", seen, alone, alone))
    for share in HONEST_SHARES if trusted in TRUSTED_MIXERS else ():
        honest = math.floor(share * source.users)
        if 1 <= honest < source.honest:
            rows.append(row("Users drop out or collude", f"{share:.0%} honest ({honest:,} of {source.users:,})", honest, target.distance))
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
    """A protocol, asked again what it hides of other moves and among other people; what was computed is kept.

    `alone` is what one report hides by itself.
    """

    def __init__(self, source: Plan | Task, protocol: Protocol, alone: Guarantee) -> None:
        self.asked, self.protocol, self.alone = source, protocol, alone
        self._sums: dict[tuple[int, bool], PrivacyProfile] = {}
        self._epsilons: dict[tuple[int, float, bool], float] = {}

    @classmethod
    def of(cls, plan: Plan, candidate: Candidate) -> Self:
        """Of a candidate whose noise is at hand."""
        if candidate.mechanism is None:
            raise InputError(
                f"what is left of {candidate.protocol} when an assumption fails can be told where its noise is at hand only; "
                "a saved plan keeps that of its chosen protocol, so plan again."
            )
        return cls(plan, candidate.mechanism, candidate.fallback)

    @cached_property
    def is_uniform_metric(self) -> bool:
        """Whether all values are hidden alike, however far apart they are."""
        return isinstance(self.protocol, Frequencies) and self.asked.query.items is None and not has_metric(self.protocol.randomizer)

    def epsilon(self, honest: int, distance: float, *, mixing: bool = True) -> float:
        """The least epsilon, over all rounds, at which one person's moves up to that distance are hidden; inf if none is certified.

        Without `mixing`, as if shares were mixed perfectly.
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
        """The same as if shares were mixed perfectly, which is asked only where `epsilon`, what is certified, is infinite."""
        return epsilon if math.isfinite(epsilon) else self.epsilon(honest, distance, mixing=False)

    def _epsilon_of_sums(self, protocol: Sums, honest: int, distance: float, *, mixing: bool) -> float:
        """By the exact law of the honest people's noise, padded or not."""
        profile = self._sums.get((honest, mixing))
        if profile is None:
            profile = self._sums[honest, mixing] = honest_sum_profile(self.asked, protocol, honest, mixing=mixing)
        moved: Target = self.asked.target.model_copy(update={"distance": distance})
        steps = moved.in_steps(protocol.step).distance
        protocol.check_bits(honest, steps)
        return profile.epsilon(moved.delta, steps)

    def _epsilon_by_account(self, honest: int, distance: float, *, mixing: bool) -> float:
        """From the protocol's own account of a flat promise, which is then asked again whether it keeps that epsilon.

        Some protocols account for a single round; then what they said is multiplied.
        """
        source, target = self.asked, self.asked.target
        # What is promised there, in proportion: an account may take the first argument that keeps the epsilon it is asked for.
        wanted = target.epsilon * (distance / target.distance if target.shape == "linear" else 1.0)
        moved = target.model_copy(update={"epsilon": wanted, "distance": distance, "shape": "flat"})
        account = self.protocol.account(source.query, moved, honest, source.rounds)
        profile = account.profile
        if not mixing:
            # Where no shares are mixed there is nothing to leave out, and what was refused is not certified by another name.
            return profile.ideal.epsilon(account.target.delta, account.target.distance) if isinstance(profile, SplitAndMix) else math.inf
        least_epsilon = profile.epsilon(account.target.delta, account.target.distance)
        if not math.isfinite(least_epsilon):
            return least_epsilon
        for times, hair in product(dict.fromkeys((1, source.rounds)), RELATIVE_MARGINS):
            total = round_up(least_epsilon * times * (1.0 + hair), 8)
            promise = moved.model_copy(update={"epsilon": total})
            if self.protocol.account(source.query, promise, honest, source.rounds).kept:
                return total
        return math.inf


def honest_sum_profile(source: Plan | Task, protocol: Sums, honest: int, *, mixing: bool = True) -> PrivacyProfile:
    """What shuffled sums hide, in steps, if only so many reports are honest; without `mixing`, as if shares were mixed perfectly."""
    accounts = protocol.accounts(source.target, source.rounds)
    profile = accounts.total_profile(protocol.shorter.summed_profile(honest))
    if not mixing or protocol.modulus is None or protocol.trusted != "shuffler":
        return profile
    sigma = security_bits(honest, protocol.shares, protocol.modulus) if honest >= MIN_USERS else 0.0
    return SplitAndMix(profile, sigma, accounts.axes * accounts.rounds)

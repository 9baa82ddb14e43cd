"""What is left of the promise when its assumptions fail, in exact numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.accounting.sums.split_and_mix import FEWEST_USERS, SplitAndMix, security_bits
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.rounding import plain
from metricshuffle.planning import Candidate, Plan
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.sums import Sums

HONEST_SHARES = (0.8, 0.5)
FARTHER = (2, 5)


@dataclass(frozen=True)
class Consequence:
    """One thing that can go wrong, and the epsilon of each protocol then (inf: no finite epsilon is certified)."""

    group: str
    situation: str
    epsilons: tuple[float, ...]
    noise_alone: tuple[float, ...]
    """The same without the term for the mixing of shares, which is what makes an epsilon infinite far out."""
    planned: bool = False


def consequences(plan: Plan, candidates: tuple[Candidate, ...]) -> list[Consequence]:
    """Rows for: as planned, the shuffler colludes, people drop out or collude, somebody moves farther than planned."""
    target, query = plan.target, plan.query
    unit = f" {query.unit}" if query.unit else ""

    def row(group: str, situation: str, honest: int, distance: float, planned: bool = False) -> Consequence:
        moved = Target(target.epsilon, target.delta, distance, target.shape)
        mixed, noise = (
            tuple(_epsilon(plan, candidate, honest, moved, mixing=mixing) for candidate in candidates) for mixing in (True, False)
        )
        return Consequence(group, situation, mixed, noise, planned)

    expected = f"{plan.honest / plan.users:.0%} honest, a move of {plain(target.distance)}{unit}"
    rows = [row("As planned", expected, plan.honest, target.distance, planned=True)]
    alone = tuple(candidate.local_epsilon for candidate in candidates)
    rows.append(Consequence("The shuffler colludes", "with the analyst: every report is seen by itself", alone, alone))
    for share in HONEST_SHARES:
        honest = math.floor(share * plan.users)
        if honest < plan.honest:
            rows.append(row("Users drop out or collude", f"{share:.0%} honest ({honest:,} of {plan.users:,})", honest, target.distance))
    for times in FARTHER:
        far = times * target.distance
        if far < query.diameter:
            rows.append(row("Someone moves farther", f"{times} times as far: {plain(far)}{unit}", plan.honest, far))
    if query.diameter > target.distance:
        across = f"from one end to the other: {plain(query.diameter)}{unit}"
        rows.append(row("Someone moves farther", across, plan.honest, query.diameter))
    return rows


def honest_profile(plan: Plan, candidate: Candidate, honest: int, *, mixing: bool = True) -> PrivacyProfile:
    """What a candidate hides, in steps, if only so many reports are honest; without `mixing`, as if shares were mixed perfectly."""
    protocol = _sums(candidate)
    accounts = protocol.accounts(plan.target, plan.rounds)
    shorter = min(protocol.randomizers, key=lambda randomizer: randomizer.span)
    profile = accounts.total_profile(shorter.summed_profile(honest))
    if not mixing or protocol.modulus is None or protocol.trusted != "shuffler":
        return profile
    sigma = security_bits(honest, protocol.shares, protocol.modulus) if honest >= FEWEST_USERS else 0.0
    return SplitAndMix(profile, sigma, accounts.axes * accounts.rounds)


def _epsilon(plan: Plan, candidate: Candidate, honest: int, moved: Target, *, mixing: bool) -> float:
    """What a candidate has for a move of the target's distance; infinite if none is certified."""
    profile = honest_profile(plan, candidate, honest, mixing=mixing)
    try:
        return profile.epsilon(moved.delta, moved.in_steps(_sums(candidate).step).distance)
    except NotCertified:
        return math.inf


def _sums(candidate: Candidate) -> Sums:
    if not isinstance(candidate.mechanism, Sums):
        raise InputError(
            f"what is left of {candidate.protocol} when an assumption fails can be told for sums whose noise is at hand only; "
            "a saved plan keeps that of its chosen protocol, so plan again."
        )
    return candidate.mechanism

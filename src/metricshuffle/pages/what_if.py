"""What is left of the promise when its assumptions fail, in exact numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from metricshuffle.accounting.sums.split_and_mix import FEWEST_USERS, SplitAndMix, security_bits
from metricshuffle.errors import NotCertified
from metricshuffle.numerics.rounding import plain
from metricshuffle.planning import Candidate, Plan
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.profile import PrivacyProfile

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
        steps = distance / query.step(plan.granularity)
        mixed, noise = (
            tuple(_epsilon(honest_profile(plan, candidate, honest, mixing=mixing), target.delta, steps) for candidate in candidates)
            for mixing in (True, False)
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
    setting = Setting(plan.query, plan.target, plan.users, honest, plan.rounds, granularity=plan.granularity)
    protocol = candidate.mechanism
    axis = min(protocol.randomizers, key=lambda randomizer: randomizer.span)
    profile = setting.total_profile(axis.summed_profile(honest))
    if not mixing or protocol.modulus is None or protocol.transport != "shuffler":
        return profile
    sigma = security_bits(honest, protocol.messages, protocol.modulus) if honest >= FEWEST_USERS else 0.0
    return SplitAndMix(profile, sigma, setting.axes * setting.rounds)


def _epsilon(profile: PrivacyProfile, delta: float, steps: float) -> float:
    try:
        return profile.epsilon(delta, steps)
    except NotCertified:
        return math.inf

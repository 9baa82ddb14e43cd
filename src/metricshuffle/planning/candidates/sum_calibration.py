"""Calibration of sums, means and centroids: each protocol with the least certified noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, partial

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.split_and_mix import MIN_MESSAGES, MIN_USERS, messages_needed
from metricshuffle.errors import ConditionError, NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.numerics.certified_search import last_certified_integer
from metricshuffle.planning.candidate import Candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.candidates.sum_setting import (
    SumSetting,
    account_of,
    noise_rate,
    samplable_rate,
    share_of,
)
from metricshuffle.planning.candidates.unary_calibration import shuffled_unary
from metricshuffle.planning.setting import Setting
from metricshuffle.protocols.place_accounts import PlaceAccounts
from metricshuffle.queries.summed_query import SummedQuery

# Fraction of delta for the statistical term of shares through a shuffler.
SHARING_DELTA_SHARE = 1e-3
NAMES = {
    "geometric-local",
    "geometric-central",
    "geometric-shuffle",
    "polya-shuffle",
    "randomized-response-shuffle",
}


@family
def sums(setting: Setting) -> Iterator[Offer]:
    """Offer local and central noise, and shuffled noise of several shapes in both encodings."""
    if not isinstance(setting.query, SummedQuery):
        return
    at = SumSetting(setting, setting.query)
    if setting.protocols is None or set(setting.protocols) & NAMES:
        at.check()
    wanted = ("unary", "modular") if setting.encoding == "auto" else (setting.encoding,)
    yield Offer("geometric-local", "modular", partial(local, at))
    yield Offer("geometric-central", "modular", partial(central, at))
    builders = {"unary": shuffled_unary, "modular": shuffled_modular}
    for shape in shapes(at):
        for encoding in wanted:
            yield Offer(share_of(at, shape)[0], encoding, partial(builders[encoding], at, shape))


def local(at: SumSetting) -> Candidate:
    """geometric-local: every person's own noise suffices; nobody is trusted."""
    rate = samplable_rate(at.accounts.pure_rate())
    protocol = at.modular("geometric-local", Polya(Fraction(1), rate), at.setting.users, "nobody")
    return at.described(protocol, account_of(at, protocol), rate=rate)


def central(at: SumSetting) -> Candidate:
    """geometric-central: a curator sees the raw values and adds noise once."""
    rate = samplable_rate(at.accounts.pure_rate())
    protocol = at.modular("geometric-central", Polya(Fraction(1), rate), 1, "curator")
    return at.described(protocol, account_of(at, protocol), rate=rate)


def shuffled_modular(at: SumSetting, total_shape: int) -> Candidate:
    """Exact noise, sent in additive shares modulo a number (or to an aggregator)."""
    name, share = share_of(at, total_shape)
    target = at.target
    mixed = at.setting.transport == "shuffler"
    if mixed and target.delta == 0.0:
        raise ConditionError(
            "Sharing through a shuffler",
            "delta > 0 (mixing is statistical)",
            "delta = 0 (use transport='aggregator')",
        )
    if mixed and at.honest < MIN_USERS:
        raise ConditionError(
            "Sharing through a shuffler", f"at least {MIN_USERS} honest users", f"{at.honest}"
        )
    budget = target.delta * (1.0 - SHARING_DELTA_SHARE) if mixed else target.delta
    rate = noise_rate(at, total_shape, budget)
    noise = Polya(share, rate)
    protocol = at.modular(
        name, noise, at.setting.users, at.setting.transport, MIN_MESSAGES if mixed else 1
    )
    if mixed:
        sharings = at.axes * at.rounds
        bits = (
            math.log2(sharings / (SHARING_DELTA_SHARE * target.delta))
            + math.log2(math.e) * max(target.epsilon, 0.0)
            + 1.0
        )
        if protocol.modulus is None:
            raise NotCertified("shares need a modulus; please report this as a bug.")
        protocol = protocol.model_copy(
            update={"shares": messages_needed(at.honest, protocol.modulus, bits)}
        )
    return at.offered(protocol, account_of(at, protocol), rate=rate, shape=total_shape)


def shapes(at: SumSetting) -> list[int]:
    """Total shapes to offer: 1 (Polya), two in between, honest (geometric), and one for a cap.

    The last shape is offered only with a cap on the local epsilon, which it meets if possible.
    """
    setting = at.setting
    if setting.shapes is not None:
        return sorted(setting.shapes)
    offered = {1, setting.honest}
    if setting.honest >= 27 and setting.target.delta > 0.0:
        offered |= {round(setting.honest ** (1.0 / 3.0)), round(setting.honest ** (2.0 / 3.0))}
    cap = setting.max_local_epsilon
    if (
        cap is not None
        and setting.target.delta > 0.0
        and (setting.wants("polya-shuffle") or setting.wants("geometric-shuffle"))
    ):
        offered.add(_shape_under(at, cap))
    return sorted(offered)


def _shape_under(at: SumSetting, cap: float) -> int:
    """Smallest total shape found whose single report meets the cap on local epsilon.

    If none meets it, the shape of the smallest local epsilon. A larger shape puts more noise into
    each report, but also allows a larger rate, so as shapes grow the report's epsilon first
    decreases and then increases. Shapes are doubled until one fits; if none does, the minimum is
    searched for near the best of them. From a shape that fits, smaller ones are bisected.
    """

    @cache
    def report(shape: int) -> float:
        rate = noise_rate(at, shape, at.setting.target.delta, relative=1e-4)
        noise = Polya(Fraction(shape, at.honest), rate)
        accounts = at.accounts
        of_places = isinstance(accounts, PlaceAccounts)
        return (
            accounts.report_profile(AdditiveNoise(noise))
            if of_places
            else accounts.noise_profile(noise)
        ).pure(at.target.distance)

    def fits(shape: int) -> bool:
        # The candidate's rate is calibrated more precisely, so it may be a little larger.
        return report(shape) <= cap * (1.0 - 1e-3)

    doubled = [
        *(2**power for power in range(at.honest.bit_length()) if 2**power < at.honest),
        at.honest,
    ]
    fitting = next((shape for shape in doubled if fits(shape)), None)
    if fitting is None:
        best = min(range(len(doubled)), key=lambda index: report(doubled[index]))
        low = doubled[max(best - 1, 0)]
        high = doubled[min(best + 1, len(doubled) - 1)]
        while high - low > 2:  # there is one local minimum
            third = (high - low) // 3
            low, high = (
                (low, high - third)
                if report(low + third) <= report(high - third)
                else (low + third, high)
            )
        fitting = min(range(low, high + 1), key=report)
        if not fits(fitting):
            return fitting
    below = max((shape for shape in doubled if shape < fitting), default=0)
    return last_certified_integer(fits, below, fitting)

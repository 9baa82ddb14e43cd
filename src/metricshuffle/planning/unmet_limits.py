"""Limits that no candidate keeps: which ones could be met, and why protocols do not apply."""

from __future__ import annotations

from metricshuffle.errors import argument
from metricshuffle.numerics.rounding import format_epsilon
from metricshuffle.planning.candidate import TRUST_ORDER, Candidate
from metricshuffle.planning.candidates import SkippedCandidate
from metricshuffle.planning.setting import Setting
from metricshuffle.protocols.damage import Damage
from metricshuffle.protocols.feature_estimates import FeatureEstimates


def nearest_limits(setting: Setting, candidates: list[Candidate]) -> str:
    """Say which limits could be met: the fewest bits, and the least local epsilon and damage."""
    allowed = [offer for offer in candidates if not offer.baseline]
    if not allowed:
        return ""
    fewest, quietest = (
        min(allowed, key=lambda offer: offer.bits_per_user),
        min(allowed, key=lambda offer: offer.local_epsilon),
    )
    return (
        "The least epsilon of one report that any candidate reaches here is "
        f"{format_epsilon(quietest.local_epsilon)} "
        f"({quietest.protocol}), and the "
        f"fewest bits are {fewest.bits_per_user:,} ({fewest.protocol}). "
        f"{'' if setting.max_damage is None else _least_damage(setting, candidates)}"
    )


def _least_damage(setting: Setting, offers: list[Candidate]) -> str:
    """Say the least certified damage that the liars of the setting do to any of the offers."""
    liars = "one participant who lies" if setting.liars == 1 else f"{setting.liars:,} liars"
    least = _least_certified([offer for offer in offers if not offer.baseline])
    bare = _least_certified([offer for offer in offers if _lacks_only_floor(setting, offer)])
    sentence = f"For no candidate here it is certified how far {liars} can move the answer. "
    if least is not None:
        damage, name = least
        sentence = (
            f"The least by which {liars} can move the answer is "
            f"{damage.text(setting.query, setting.liars)} ({name}). "
        )
    if bare is not None and (least is None or bare[0].sort_key < least[0].sort_key):
        damage, name = bare
        sentence += (
            f"With {argument('floor', 'never')} it is {damage.text(setting.query, setting.liars)} "
            f"({name}), and then a colluding shuffler reads the values. "
        )
    return sentence


def _least_certified(offers: list[Candidate]) -> tuple[Damage, str] | None:
    """Least certified damage with a number, and its protocol; None if there is no such damage."""
    damages = [
        (offer.damage, offer.protocol)
        for offer in offers
        if offer.damage is not None and offer.damage.certified and offer.damage.one is not None
    ]
    return min(damages, key=lambda row: row[0].sort_key, default=None)


def _lacks_only_floor(setting: Setting, offer: Candidate) -> bool:
    """Whether a candidate is left out only because it randomizes no values locally first."""
    return (
        offer.baseline
        and setting.max_local_epsilon is None
        and (setting.max_bits is None or offer.bits_per_user <= setting.max_bits)
        and TRUST_ORDER[offer.trusted] <= TRUST_ORDER[setting.trusted]
        and isinstance(offer.mechanism, FeatureEstimates)
        and offer.mechanism.floor is None
    )


def first_reasons(skipped: list[SkippedCandidate]) -> str:
    """Say why the first few skipped protocols do not apply."""
    return "; ".join(
        f"{row.protocol}{f' ({row.encoding})' if row.encoding else ''}: {row.reason.rstrip('.')}"
        for row in skipped[:3]
    )

"""Families of candidates: each names what it can offer for a setting, and calibrates it when asked.

A family is a function from a setting to offers, registered with `@family`; adding one takes one file and no list elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.planning.candidate import ERROR_TOLERANCE, Candidate, allowed_candidates
from metricshuffle.planning.setting import Setting


@dataclass(frozen=True)
class Offer:
    """A candidate that can be calibrated."""

    protocol: str
    encoding: str | None
    make: Callable[[], Candidate | Callable[[], Candidate]]
    """The candidate, or what is left to do for it: work that goes on aside is waited for once all other offers were made."""
    exceeds: Callable[[float], bool] | None = None
    """Of an offer that takes long to calibrate: exceeds(error) is true only if its expected error is certainly larger than that. It is
    then left out if another candidate that may be chosen has that error, unless it was asked for by name."""


@dataclass(frozen=True)
class SkippedCandidate:
    """What did not apply, and why."""

    protocol: str
    encoding: str | None
    reason: str


Made = TypeVar("Made")
Family = Callable[[Setting], Iterable[Offer]]
_FAMILIES: dict[str, Family] = {}


def family(offers: Family) -> Family:
    """Register a family of candidates under its own name."""
    _FAMILIES[f"{offers.__qualname__}, {offers.__module__}"] = offers
    return offers


def all_offers(setting: Setting) -> list[Offer]:
    """What every family offers for a setting; nothing is calibrated yet."""
    package = import_module("metricshuffle.planning.candidates")
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    # by name: which module was imported first must not show in a plan
    return [offer for _, offers in sorted(_FAMILIES.items()) for offer in offers(setting)]


def calibrate_offers(setting: Setting, progress: Callable[[str], None] | None = None) -> Iterator[Candidate | SkippedCandidate]:
    """Every candidate that is wanted, calibrated, or why it could not be."""
    offers = all_offers(setting)
    names = list(dict.fromkeys(offer.protocol for offer in offers))
    unknown = [name for name in setting.protocols or () if name not in names]
    if unknown or setting.protocols == ():
        nothing = f"there is no protocol {unknown[0]!r}" if unknown else "protocols names none"
        raise InputError(f"{nothing} for {setting.query}; choose among {', '.join(names)}.")
    wanted = [offer for offer in offers if setting.wants(offer.protocol)]
    begun: dict[int, Candidate | SkippedCandidate | Callable[[], Candidate]] = {}
    # What takes long comes last: it may be left out then.
    for place, offer in sorted(enumerate(wanted), key=lambda entry: entry[1].exceeds is not None):
        if (why := _cannot_win(setting, offer, [finished for finished in begun.values() if isinstance(finished, Candidate)])) is not None:
            begun[place] = why
            continue
        if progress is not None:
            progress(offer.protocol if offer.encoding is None else f"{offer.protocol} ({offer.encoding})")
        begun[place] = _or_why_not(offer, offer.make)
    for place, offer in enumerate(wanted):
        so_far = begun[place]
        yield so_far if isinstance(so_far, Candidate | SkippedCandidate) else _or_why_not(offer, so_far)


def _cannot_win(setting: Setting, offer: Offer, candidates: list[Candidate]) -> SkippedCandidate | None:
    """Why an offer is not calibrated: it takes long, and its error is certainly larger than that of a candidate that may be chosen."""
    usable = [candidate for _, candidate in allowed_candidates(setting, candidates)]
    if offer.exceeds is None or setting.protocols is not None or not usable:
        return None
    best = min(usable, key=lambda candidate: candidate.expected_error)
    if not offer.exceeds(best.expected_error * (1.0 + ERROR_TOLERANCE)):
        return None
    encoding = "" if best.encoding is None else f" ({best.encoding})"
    return SkippedCandidate(
        offer.protocol,
        offer.encoding,
        f"it was not calibrated, which takes long: it cannot have less error than {best.protocol}{encoding}; to see it all the same, ask "
        f"for it by name (--protocols {offer.protocol}, or protocols=[{offer.protocol!r}] in Python).",
    )


def _or_why_not(offer: Offer, step: Callable[[], Made]) -> Made | SkippedCandidate:
    try:
        return step()
    except (ConditionError, NotCertified, InputError) as reason:
        return SkippedCandidate(offer.protocol, offer.encoding, str(reason))

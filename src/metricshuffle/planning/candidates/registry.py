"""Registry of candidate families, which list offers for a setting and calibrate them on demand.

A family is a function from a setting to offers, registered with `@family`. A new family is one new
module in this package; no list needs to be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

from metricshuffle.display import nearest_word
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.planning.candidate import ERROR_TOLERANCE, Candidate, allowed_candidates
from metricshuffle.planning.setting import Setting


@dataclass(frozen=True)
class Offer:
    """A candidate that can be calibrated."""

    protocol: str
    encoding: str | None
    make: Callable[[], Candidate | Callable[[], Candidate]]
    """Returns the candidate, or a function that waits for calibration in another thread.

    The function is called once all other offers were made.
    """
    exceeds: Callable[[float], bool] | None = None
    """For slow offers: exceeds(error) is true only if the expected error is certainly larger.

    Such an offer is skipped if an allowed candidate has that error, unless it was requested by
    name.
    """


@dataclass(frozen=True)
class SkippedCandidate:
    """An offer that does not apply, and the reason."""

    protocol: str
    encoding: str | None
    reason: str
    """A sentence with marked arguments, as in an error."""


Made = TypeVar("Made")
Family = Callable[[Setting], Iterable[Offer]]
_FAMILIES: dict[str, Family] = {}


def family(offers: Family) -> Family:
    """Register a family of candidates under its own name."""
    _FAMILIES[f"{offers.__qualname__}, {offers.__module__}"] = offers
    return offers


def all_offers(setting: Setting) -> list[Offer]:
    """Return the offers of all families for a setting, without calibrating them."""
    package = import_module("metricshuffle.planning.candidates")
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    # Sorted, so that a plan does not depend on the order of imports.
    return [offer for _, offers in sorted(_FAMILIES.items()) for offer in offers(setting)]


def calibrate_offers(
    setting: Setting, progress: Callable[[str], None] | None = None
) -> Iterator[Candidate | SkippedCandidate]:
    """Calibrate every requested offer, or say why that is not possible."""
    offers = all_offers(setting)
    names = list(dict.fromkeys(offer.protocol for offer in offers))
    unknown = [name for name in setting.protocols or () if name not in names]
    if unknown or setting.protocols == ():
        nothing = f"there is no protocol {unknown[0]!r}" if unknown else "protocols is empty"
        nearest = nearest_word(unknown[0], names) if unknown else ""
        raise InputError(
            f"{nothing} for {setting.query}",
            field="protocols",
            remedy=f"choose among {', '.join(names)}.{nearest}",
        )
    wanted = [offer for offer in offers if setting.wants(offer.protocol)]
    begun: dict[int, Candidate | SkippedCandidate | Callable[[], Candidate]] = {}
    # Slow offers come last, because they may then be skipped.
    for place, offer in sorted(enumerate(wanted), key=lambda entry: entry[1].exceeds is not None):
        if (
            why := _cannot_win(
                setting,
                offer,
                [finished for finished in begun.values() if isinstance(finished, Candidate)],
            )
        ) is not None:
            begun[place] = why
            continue
        if progress is not None:
            progress(
                offer.protocol if offer.encoding is None else f"{offer.protocol} ({offer.encoding})"
            )
        begun[place] = _or_why_not(offer, offer.make)
    for place, offer in enumerate(wanted):
        so_far = begun[place]
        yield (
            so_far
            if isinstance(so_far, Candidate | SkippedCandidate)
            else _or_why_not(offer, so_far)
        )


def _cannot_win(
    setting: Setting, offer: Offer, candidates: list[Candidate]
) -> SkippedCandidate | None:
    """Reason to skip a slow offer: its error certainly exceeds that of an allowed candidate."""
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
        "it was not calibrated, which is slow, because it cannot have less error than "
        f"{best.protocol}{encoding}; to calibrate it anyway, name it "
        f"(--protocol {offer.protocol}, or protocols=[{offer.protocol!r}] in Python).",
    )


def _or_why_not(offer: Offer, step: Callable[[], Made]) -> Made | SkippedCandidate:
    try:
        return step()
    except (ConditionError, NotCertified, InputError) as reason:
        return SkippedCandidate(offer.protocol, offer.encoding, reason.template)

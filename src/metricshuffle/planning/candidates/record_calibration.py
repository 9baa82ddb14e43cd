"""Calibration of one report of a whole record: Duchi, Harmony, PrivSet and PrivKV."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from metricshuffle.errors import NotCertified
from metricshuffle.numerics.rounding import format_epsilon
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.candidates.histogram_calibration import (
    largest_strength,
    strongest_member,
)
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import shuffled_profile
from metricshuffle.protocols.record_reports import RecordReports
from metricshuffle.queries.record_query import RecordQuery
from metricshuffle.randomizers.corner_vectors import Duchi, Harmony
from metricshuffle.randomizers.key_values import PrivKV
from metricshuffle.randomizers.randomizer import FittedFamily, Randomizer
from metricshuffle.randomizers.subsets import SubsetExponential

NAMES: dict[type[Randomizer], str] = {
    Duchi: "duchi",
    Harmony: "harmony",
    SubsetExponential: "priv-set",
    PrivKV: "priv-kv",
}


@family
def record_reports(setting: Setting) -> Iterator[Offer]:
    """Offer the randomizers of whole records that fit the query."""
    query = setting.query
    if not isinstance(query, RecordQuery):
        return
    for randomizer, name in NAMES.items():
        fitted = randomizer.fitted(query.values_in, query.rows)
        if fitted is not None:
            # The account of PrivKV compares many pairs of records, which takes seconds.
            slow = randomizer is PrivKV
            yield Offer(
                name,
                None,
                partial(calibrate_record, setting, name, fitted),
                partial(exceeds_error_of_records, setting, name, fitted) if slow else None,
            )


def exceeds_error_of_records(
    setting: Setting, name: str, fitted: FittedFamily, error: float
) -> bool:
    """Whether even the strongest member that the setting allows has a larger expected error."""
    strongest = RecordReports(
        name=name, trusted="nobody", randomizer=fitted(largest_strength(setting))
    )
    return strongest.expected_error(setting.query, setting.users) > error


def calibrate_record(setting: Setting, name: str, fitted: FittedFamily) -> Candidate:
    """Calibrate the strongest certified member among the honest reports, or without a shuffler."""
    if setting.target.shape != "flat":
        raise NotCertified(
            f"{name} hides all records alike, near ones no better, so it is for flat promises only."
        )
    target = setting.target.for_each_of(setting.rounds)
    shuffled = setting.trusted != "nobody" and target.delta > 0.0
    alone = target.epsilon * (1.0 - 1e-12)
    max_strength = largest_strength(setting)

    def protocol(strength: float, trusted: bool) -> RecordReports:
        return RecordReports(
            name=name,
            trusted="shuffler" if trusted else "nobody",
            randomizer=fitted(strength),
        )

    if not shuffled or max_strength <= alone:
        return candidate(setting, protocol(min(alone, max_strength), False))
    promise = Target(target.epsilon, 0.0, 1.0, "flat").with_delta(target.delta)

    def is_kept(strength: float) -> bool:
        return promise.kept_by(shuffled_profile(fitted(strength), setting.honest))

    def nearly(strength: float) -> bool:
        return promise.nearly_kept_by(shuffled_profile(fitted(strength), setting.honest))

    strength = strongest_member(nearly, is_kept, alone, max_strength)
    if strength <= alone * (1.0 + 1e-3):
        return candidate(setting, protocol(alone, False))
    chosen = protocol(strength, True)
    account = chosen.account(setting.query, setting.target, setting.honest, setting.rounds)
    if not account.kept:
        raise NotCertified(
            "the calibrated randomizer could not be verified; please report this as a bug."
        )
    more = format_epsilon(chosen.randomizer.local_epsilon())
    gain = (
        f"Hidden among {setting.honest:,} honest reports, one may have epsilon {more} instead of "
        f"{format_epsilon(alone)}."
    )
    return candidate(setting, chosen, account, gain=gain)

"""Profiles of rounds of shuffled reports, each between inputs up to its own distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from metricshuffle.accounting.composition.composed_profile import ComposedProfile, TabulatedProfile
from metricshuffle.amplification.amplify import GenericLDP, amplify
from metricshuffle.errors import InputError
from metricshuffle.privacy.dominating_pair import Curve
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.randomizers.channel import ChannelPair
from metricshuffle.randomizers.randomizer import Randomizer

WHOLE = 1.0
"""Default of distance arguments, which are ignored: each profile has its own distance."""
RELATIVE_TOLERANCE_OF_CURVES = 1e-3
CACHED_PROFILES = 64


@dataclass(frozen=True, eq=False)
class RoundProfile(PrivacyProfile):
    """Profile of one round for inputs up to its own `distance`; distance arguments are ignored."""

    profile: PrivacyProfile
    distance: float
    quicker: PrivacyProfile
    """Profile of the same round with coarser, larger deltas, for curves of hundreds of points."""

    @property
    def bound(self) -> str:  # type: ignore[override]
        """The name of the wrapped bound."""
        return self.profile.bound

    def pure(self, distance: float = WHOLE) -> float:
        return self.profile.pure(self.distance)

    def delta(self, epsilon: float, distance: float = WHOLE) -> float:
        return self.profile.delta(epsilon, self.distance)

    def epsilon(self, delta: float, distance: float = WHOLE) -> float:
        return self.profile.epsilon(delta, self.distance)

    def _curve(self, distance: float) -> tuple[Curve, float]:
        return self.quicker._curve(self.distance)


def check_all_pairs(randomizer: Randomizer | GenericLDP) -> None:
    """Raise if a randomizer accounts for some pairs only, which other libraries cannot express."""
    if isinstance(randomizer, ChannelPair):
        raise InputError(
            f"a ChannelPair is accounted for between the inputs {randomizer.first} and "
            f"{randomizer.second} only, but a person may change to any input.",
            field="randomizer",
            remedy="Use the Channel.",
        )


@lru_cache(maxsize=CACHED_PROFILES)
def round_profile(
    randomizer: Randomizer | GenericLDP, users: int, distance: float | None = None
) -> RoundProfile:
    """Return the certified upper profile of `users` shuffled reports (default: any two inputs)."""
    check_all_pairs(randomizer)
    amplified = amplify(randomizer, users)
    quicker = amplify(randomizer, users, relative=RELATIVE_TOLERANCE_OF_CURVES).upper
    return RoundProfile(amplified.upper, amplified.far(distance), quicker)


def joint_profile(parts: Sequence[tuple[RoundProfile, int]]) -> PrivacyProfile:
    """Return the profile of several rounds together, given as profiles and how often each ran."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    counts: dict[RoundProfile, int] = {}
    for profile, count in parts:
        counts[profile] = counts.get(profile, 0) + count
    return ComposedProfile(
        tuple((TabulatedProfile(profile), count) for profile, count in counts.items())
    )

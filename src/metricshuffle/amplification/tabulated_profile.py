"""A profile that is asked at few epsilons, for those who ask a thousand times."""

from __future__ import annotations

from dataclasses import dataclass, field

from metricshuffle.privacy.dominating_pair import DominatingPair
from metricshuffle.privacy.profile import PrivacyProfile, checked_epsilon

TABLE_POINTS = 128
SMALLEST_DELTA = 1e-24  # below what a composition of many rounds looks at


@dataclass(frozen=True)
class TabulatedProfile(PrivacyProfile):
    """Another profile at about a hundred epsilons, and chords between them, which lie above the truth (`dominating_pair`).

    Of several rounds the epsilon comes out larger by less than a thousandth.
    """

    profile: PrivacyProfile
    bound: str = "sampled"
    _known: dict[float, DominatingPair] = field(default_factory=dict, init=False, repr=False, compare=False)

    def pure(self, distance: float) -> float:
        return self.profile.pure(distance)

    def delta(self, epsilon: float, distance: float) -> float:
        epsilon = checked_epsilon(epsilon)
        if epsilon >= self.pure(distance):
            return 0.0
        if distance not in self._known:
            self._known[distance] = self.profile.dominating_pair(distance, points=TABLE_POINTS, negligible=SMALLEST_DELTA)
        return self._known[distance].delta(epsilon)

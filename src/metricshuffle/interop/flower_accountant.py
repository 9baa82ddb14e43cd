"""Accountant for Flower: rounds of shuffled updates, by the protocol of its `PrivacyAccountant`.

The protocol is that of `flwr.supercore.privacy_accounting`, from Flower 1.39 on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from metricshuffle.errors import InputError, argument, require
from metricshuffle.interop.peer_packages import require_peer_of
from metricshuffle.interop.shuffled_rounds import WHOLE, RoundProfile, joint_profile, round_profile
from metricshuffle.models import content_digest
from metricshuffle.privacy.profile import PrivacyProfile, checked_delta, checked_epsilon
from metricshuffle.privacy.target import checked_users
from metricshuffle.protocols.frequencies import known_randomizers
from metricshuffle.randomizers.randomizer import Randomizer

if TYPE_CHECKING:
    from flwr.supercore.privacy_accounting import PrivacyConfig, PrivacySpent

STATE_FORMAT = "metricshuffle-flower-accountant/1"
METHOD = "metricshuffle"
REPLACE_ONE = "replace-one"


@dataclass(frozen=True)
class ShuffledPrivacyEvent:
    """Rounds in which `sample_size` honest clients send a randomized update through a shuffler.

    `distance` is how far apart the two updates of a client are; by default they may be any two.
    """

    randomizer: Randomizer
    sample_size: int
    population_size: int
    distance: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.randomizer, Randomizer):
            raise InputError(
                f"{argument('randomizer')} must be a randomizer, got "
                f"{type(self.randomizer).__name__}."
            )
        checked_users(self.sample_size)
        checked_users(self.population_size)
        if self.sample_size > self.population_size:
            raise InputError(
                f"sample_size ({self.sample_size:,}) must not exceed population_size "
                f"({self.population_size:,})."
            )

    @cached_property
    def profile(self) -> RoundProfile:
        """The certified upper profile of one round."""
        return round_profile(self.randomizer, self.sample_size, self.distance)


class FlowerAccountant:
    """Privacy accountant of Flower for shuffled rounds; every number is a certified upper bound.

    Neighbours differ in one client's update (`replace-one`). Who takes part in a round is public
    in the shuffle model, so sampling clients does not amplify: every client counts as if they took
    part in every round.
    """

    def __init__(self, config: PrivacyConfig) -> None:
        if config.neighboring_relation.value != REPLACE_ONE:
            raise InputError(
                "shuffled updates hide what a client sends and not that they take part, so the "
                f"neighboring relation must be {REPLACE_ONE!r}, got "
                f"{config.neighboring_relation.value!r}."
            )
        self._config = config
        self._rounds: list[tuple[ShuffledPrivacyEvent, int]] = []
        self._joint: PrivacyProfile | None = None

    @property
    def config(self) -> PrivacyConfig:
        """The privacy configuration."""
        return self._config

    @property
    def num_releases(self) -> int:
        """Number of composed rounds."""
        return sum(count for _, count in self._rounds)

    def compose(self, event: ShuffledPrivacyEvent, count: int = 1) -> None:
        """Compose `count` rounds of the same kind."""
        self._check(event, count)
        self._rounds.append((event, count))
        self._joint = None

    def get_epsilon(self, delta: float) -> float:
        """Return the total epsilon of all rounds at this delta."""
        checked_delta(delta)
        if not self._rounds:
            return 0.0
        alone = [event.profile.epsilon(delta) for event, _ in self._rounds]
        return max(self._profile().epsilon(delta, WHOLE), *alone)

    def get_delta(self, epsilon: float) -> float:
        """Return the delta of all rounds at this total epsilon."""
        checked_epsilon(epsilon)
        return self._profile().delta(epsilon, WHOLE) if self._rounds else 0.0

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """Return Flower's record of what was spent, at `delta` or the configured delta."""
        require_peer_of(__name__)
        target = self._config.target_delta if delta is None else delta
        records = require("flwr.supercore.privacy_accounting", "flower")
        return records.PrivacySpent(
            epsilon=self.get_epsilon(target),
            delta=target,
            num_releases=self.num_releases,
            accounting_method=METHOD,
        )

    def would_exceed(
        self, event: ShuffledPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Return whether `count` more rounds would exceed an epsilon; they are not composed."""
        self._check(event, count)
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None or not 0.0 < limit < math.inf:
            raise InputError(
                f"max_epsilon must be a finite number > 0, here or in the configuration, got "
                f"{limit!r}."
            )
        projected = FlowerAccountant(self._config)
        projected._rounds = [*self._rounds, (event, count)]
        return not projected.get_epsilon(self._config.target_delta) <= limit

    def state_dict(self) -> dict[str, object]:
        """Return all rounds as JSON values, with a checksum."""
        content: dict[str, object] = {
            "format": STATE_FORMAT,
            "target_delta": self._config.target_delta,
            "population_size": self._config.population_size,
            "rounds": [
                {
                    "randomizer": event.randomizer.model_dump(mode="json"),
                    "sample_size": event.sample_size,
                    "distance": event.distance,
                    "count": count,
                }
                for event, count in self._rounds
            ],
        }
        return {**content, "checksum": content_digest(content)}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Replace all rounds by those of a `state_dict`; raise, and change nothing, if damaged."""
        content = {name: value for name, value in state.items() if name != "checksum"}
        if content.get("format") != STATE_FORMAT:
            raise InputError(
                f"this is not a state of this accountant: its format is {content.get('format')!r}, "
                f"not {STATE_FORMAT!r}."
            )
        if state.get("checksum") != content_digest(content):
            raise InputError("the state was edited or damaged: its checksum does not match.")
        for name in ("target_delta", "population_size"):
            if content.get(name) != getattr(self._config, name):
                raise InputError(
                    f"the state was written with {name} {content.get(name)!r}, and this accountant "
                    f"has {getattr(self._config, name)!r}; use the same configuration."
                )
        stored = content.get("rounds")
        if not isinstance(stored, list):
            raise InputError("the state has no list of rounds.")
        rounds = [self._read(entry) for entry in stored]
        for event, count in rounds:
            self._check(event, count)
        self._rounds = rounds
        self._joint = None

    def _read(self, entry: object) -> tuple[ShuffledPrivacyEvent, int]:
        if not isinstance(entry, dict):
            raise InputError("the state has a round that is no JSON object.")
        randomizer = read_randomizer(entry.get("randomizer"))
        size, distance, count = (entry.get(name) for name in ("sample_size", "distance", "count"))
        if not isinstance(size, int) or not isinstance(count, int):
            raise InputError("the state has a round without whole numbers of clients and rounds.")
        if distance is not None and not isinstance(distance, int | float):
            raise InputError("the state has a distance that is no number.")
        event = ShuffledPrivacyEvent(randomizer, size, self._config.population_size, distance)
        return event, count

    def _check(self, event: ShuffledPrivacyEvent, count: int) -> None:
        if not isinstance(event, ShuffledPrivacyEvent):
            raise InputError(
                f"this accountant composes a ShuffledPrivacyEvent, got {type(event).__name__}; "
                "Gaussian noise of the server has Flower's own accountant."
            )
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"count must be a whole number >= 1, got {count!r}.")
        if event.population_size != self._config.population_size:
            raise InputError(
                f"the event has population_size {event.population_size:,}, and the configuration "
                f"{self._config.population_size:,}; they must agree."
            )

    def _profile(self) -> PrivacyProfile:
        if self._joint is None:
            self._joint = joint_profile([(event.profile, count) for event, count in self._rounds])
        return self._joint


def read_randomizer(stored: object) -> Randomizer:
    """Read a randomizer that a state contains."""
    known_randomizers()
    randomizer = Randomizer.of_kind(stored)
    if not isinstance(randomizer, Randomizer):
        raise InputError("the state has a round without a randomizer.")
    return randomizer

"""Event of shuffled reports for dp-accounting, and accountants that accept it.

Nothing of metricshuffle is imported before an accountant composes such an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import attr
from dp_accounting import dp_event, privacy_accountant
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricshuffle.amplification.amplify import GenericLDP
    from metricshuffle.interop.shuffled_rounds import RoundProfile
    from metricshuffle.privacy.profile import PrivacyProfile
    from metricshuffle.randomizers.randomizer import Randomizer

Relation: TypeAlias = privacy_accountant.NeighboringRelation
Refusal: TypeAlias = privacy_accountant.PrivacyAccountant.CompositionErrorDetails

# Shares of delta (or epsilon) tried for the shuffled events; the other events get the rest.
SHARES = (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999)
ROUNDED_UP = 1.0 + 1e-12
# Numbers of epsilons at which a curve is sampled.
LOSS_POINTS = 256
RENYI_POINTS = 128
# Renyi divergences follow the curve closely down to this delta; below it, they are larger.
SMALLEST_DELTA = 1e-100


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """Reports of `users` honest people through one randomizer, published in random order.

    Neighbouring data sets differ in the value of one person only; the number of people is public.
    `distance` is how far apart the two values are; by default they may be any two inputs.
    """

    randomizer: Randomizer | GenericLDP
    users: int
    distance: float | None = None


def event_profile(event: ShuffledDpEvent) -> RoundProfile:
    """Return the certified upper profile of an event."""
    from metricshuffle.interop.shuffled_rounds import round_profile

    return round_profile(event.randomizer, event.users, event.distance)


def refusal(event: ShuffledDpEvent, relation: Relation) -> Refusal | None:
    """Return why an accountant with that relation refuses the event, or None if it does not."""
    if relation is not Relation.REPLACE_ONE:
        problem = (
            "neighboring_relation must be `REPLACE_ONE` for `ShuffledDpEvent`, whose number of "
            f"people is public. Found {relation}."
        )
        return Refusal(invalid_event=event, error_message=problem)
    try:
        event_profile(event)
    except ValueError as error:  # an InputError: the randomizer, people or distance
        return Refusal(invalid_event=event, error_message=str(error))
    return None


def composed_parts(event: dp_event.DpEvent, count: int) -> Iterator[tuple[dp_event.DpEvent, int]]:
    """Yield the events that a tree of composed events contains, and how often each happens."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        yield from composed_parts(event.event, event.count * count)
    elif isinstance(event, dp_event.ComposedDpEvent):
        for part in event.events:
            yield from composed_parts(part, count)
    else:
        yield event, count


class ShuffledRounds:
    """Shuffled events that an accountant has composed, with their joint profile."""

    def __init__(self) -> None:
        self.parts: list[tuple[RoundProfile, int]] = []
        self._joint: PrivacyProfile | None = None

    def compose(
        self, event: dp_event.DpEvent, count: int
    ) -> Iterator[tuple[dp_event.DpEvent, int]]:
        """Add the shuffled events of a tree, and yield the others with how often each happens."""
        for part, times in composed_parts(event, count):
            if isinstance(part, ShuffledDpEvent):
                if times > 0:
                    self.parts.append((event_profile(part), times))
                    self._joint = None
            elif not isinstance(part, dp_event.NoOpDpEvent):
                yield part, times

    def joint(self) -> PrivacyProfile | None:
        """Return the profile of all of them; None if there are none, or too many to compose."""
        from metricshuffle.accounting.composition.composed_profile import MAX_ROUNDS
        from metricshuffle.interop.shuffled_rounds import joint_profile

        if not 0 < sum(count for _, count in self.parts) <= MAX_ROUNDS:
            return None
        if self._joint is None:
            self._joint = joint_profile(self.parts)
        return self._joint

    def largest_epsilon(self, delta: float) -> float:
        """Return the largest epsilon of one event alone; 0 if there are none."""
        return max((profile.epsilon(delta) for profile, _ in self.parts), default=0.0)

    def largest_delta(self, epsilon: float) -> float:
        """Return the largest delta of one event alone; 0 if there are none."""
        return max((profile.delta(epsilon) for profile, _ in self.parts), default=0.0)


class ShuffledPLDAccountant(PLDAccountant):  # type: ignore[misc]
    """Accountant by privacy loss distributions that accepts shuffled events.

    Composed with other events, `value_discretization_interval` should be at most a hundredth of the
    epsilon that is asked for. Shuffled events alone have the smaller bound of the distributions and
    of their joint profile, which needs no interval. Epsilon and delta are never smaller than those
    of each shuffled event alone.
    """

    def __init__(
        self,
        neighboring_relation: Relation = Relation.REPLACE_ONE,
        value_discretization_interval: float = 1e-4,
    ) -> None:
        super().__init__(neighboring_relation, value_discretization_interval)
        self._rounds = ShuffledRounds()
        self._has_others = False

    def compose(self, event: dp_event.DpEvent, count: int = 1) -> ShuffledPLDAccountant:
        super().compose(event, count)
        for _ in self._rounds.compose(event, count):
            self._has_others = True
        return self

    def _maybe_compose(
        self, event: dp_event.DpEvent, count: int, do_compose: bool
    ) -> Refusal | None:
        if not isinstance(event, ShuffledDpEvent):
            return super()._maybe_compose(event, count, do_compose)
        refused = refusal(event, self.neighboring_relation)
        if refused is None and do_compose and count > 0:
            profile = event_profile(event)
            losses = profile.to_pld(
                profile.distance, self._value_discretization_interval, points=LOSS_POINTS
            )
            composed = losses if count == 1 else losses.self_compose(count)
            self._pld = self._pld.compose(composed)  # type: ignore[has-type]
        return refused

    def get_epsilon(self, target_delta: float) -> float:
        epsilon = float(super().get_epsilon(target_delta))
        joint = None if self._has_others else self._rounds.joint()
        if joint is not None:
            epsilon = min(epsilon, joint.epsilon(target_delta, 1.0))
        return max(epsilon, self._rounds.largest_epsilon(target_delta))

    def get_delta(self, target_epsilon: float) -> float:
        delta = float(super().get_delta(target_epsilon))
        joint = None if self._has_others else self._rounds.joint()
        if joint is not None:
            delta = min(delta, joint.delta(target_epsilon, 1.0))
        return max(delta, self._rounds.largest_delta(target_epsilon))


class RenyiAccountant(RdpAccountant):  # type: ignore[misc]
    """Accountant by Renyi divergences that accepts shuffled events."""

    def __init__(
        self,
        orders: Sequence[float] | None = None,
        neighboring_relation: Relation = Relation.REPLACE_ONE,
    ) -> None:
        super().__init__(orders, neighboring_relation)

    def _maybe_compose(
        self, event: dp_event.DpEvent, count: int, do_compose: bool
    ) -> Refusal | None:
        if not isinstance(event, ShuffledDpEvent):
            return super()._maybe_compose(event, count, do_compose)
        refused = refusal(event, self.neighboring_relation)
        if refused is None and do_compose and count > 0:
            profile = event_profile(event)
            pure = profile.pure()
            pair = profile.dominating_pair(
                profile.distance, points=RENYI_POINTS, negligible=SMALLEST_DELTA
            )
            for place, order in enumerate(self._orders.tolist()):
                self._rdp[place] += count * min(pure, pair.renyi(order)) * ROUNDED_UP
        return refused


class ShuffledRdpAccountant(RenyiAccountant):
    """Accountant by Renyi divergences that accepts shuffled events.

    Renyi divergences of shuffled reports say little at a small delta, because they must hold far
    beyond the losses that matter. So epsilon is the smaller of two upper bounds. The first uses the
    divergences of all events. The second is a sum: the joint profile bounds the shuffled events,
    divergences bound the others, and each gets a share of delta. `rdp` and
    `get_epsilon_and_optimal_order` use the first.
    """

    def __init__(
        self,
        orders: Sequence[float] | None = None,
        neighboring_relation: Relation = Relation.REPLACE_ONE,
    ) -> None:
        super().__init__(orders, neighboring_relation)
        self._others = RenyiAccountant(orders, neighboring_relation)
        self._has_others = False
        self._rounds = ShuffledRounds()

    def compose(self, event: dp_event.DpEvent, count: int = 1) -> ShuffledRdpAccountant:
        super().compose(event, count)
        for part, times in self._rounds.compose(event, count):
            self._others.compose(part, times)
            self._has_others = True
        return self

    def _smaller(
        self,
        whole: float,
        total: float,
        shuffled: Callable[[float], float],
        others: Callable[[float], float],
    ) -> float:
        """Return the smaller bound: `whole`, or a sum for the best shares of `total`."""
        if not self._has_others:
            return min(whole, shuffled(total))
        sums = [
            shuffled(share * total / ROUNDED_UP) + others((1.0 - share) * total / ROUNDED_UP)
            for share in SHARES
        ]
        return min(whole, *(bound * ROUNDED_UP for bound in sums))

    def get_epsilon(self, target_delta: float) -> float:
        epsilon = float(super().get_epsilon(target_delta))
        joint = self._rounds.joint()
        if joint is not None:
            epsilon = self._smaller(
                epsilon,
                target_delta,
                lambda delta: joint.epsilon(delta, 1.0),
                lambda delta: float(self._others.get_epsilon(delta)),
            )
        return max(epsilon, self._rounds.largest_epsilon(target_delta))

    def get_delta(self, target_epsilon: float) -> float:
        delta = float(super().get_delta(target_epsilon))
        joint = self._rounds.joint()
        if joint is not None:
            delta = self._smaller(
                delta,
                target_epsilon,
                lambda epsilon: joint.delta(epsilon, 1.0),
                lambda epsilon: float(self._others.get_delta(epsilon)),
            )
        return max(min(1.0, delta), self._rounds.largest_delta(target_epsilon))

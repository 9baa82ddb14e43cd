"""Upper bounds for one person among several groups: a pair of laws, and the laws of the others.

K_a and K_b are the two possible laws of the person's report, and K_i is the law of the report of
another person i.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from metricshuffle.accounting.shuffling import blanket_bound as blanket
from metricshuffle.accounting.shuffling import mixed_groups_bound
from metricshuffle.accounting.shuffling.blanket_law import MIN_MASS, BlanketLaw
from metricshuffle.accounting.shuffling.clone_bound import ClonePair
from metricshuffle.accounting.shuffling.input_class_laws import InputClassLaws
from metricshuffle.accounting.shuffling.mixture_weights import (
    CommonComponent,
    OtherGroup,
    choose_blanket,
    choose_groups,
)
from metricshuffle.amplification.smallest_bound import WIN_RATIO, BoundResult
from metricshuffle.citations import theorem
from metricshuffle.numerics.rounding import never_small
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import (
    PrivacyProfile,
    checked_delta,
    checked_epsilon,
    validate_distance,
)

MAX_ATOMS = 2**14  # max of all types of one part; with more atoms, inputs are put in classes
ROUGH_TOLERANCE = 1e-5  # relative, of evaluations of the blanket
MIN_EPSILON_TOLERANCE = 1e-6  # the error of the bound itself is larger

OtherGroups = tuple[tuple[Floats, int], ...]
"""Groups of others: the laws of the inputs they may hold, as rows, and the number of people."""


@dataclass(frozen=True, eq=False)
class MixedGroupsPair:
    """A report with the law `first` or `second`, among groups with at least one person each.

    `excess` is first - second where it is known to the last digits. `beyond` and `blanket` name the
    two bounds.
    """

    first: Floats
    second: Floats
    others: OtherGroups
    excess: Floats | None = None
    beyond: str = "beyond-blanket"
    blanket: str = "blanket"

    @cached_property
    def gap(self) -> Floats:
        """first - second, from `excess` where it is known."""
        return self.first - self.second if self.excess is None else self.excess

    @cached_property
    def _groups(self) -> list[OtherGroup]:
        return [OtherGroup.of(rows, people, self.gap) for rows, people in self.others]

    @property
    def spread(self) -> float:
        """How little the others hide, for many people; larger is worse. It only ranks pairs."""
        people = sum(many for _, many in self.others)
        return (
            sum(group.spread * group.people for group in self._groups) / people
            if people
            else math.inf
        )

    def _laws(self, rows: Floats) -> InputClassLaws:
        wide = math.ceil(rows.size / MAX_ATOMS)
        classes = (
            None
            if wide == 1
            else [range(i, min(i + wide, len(rows))) for i in range(0, len(rows), wide)]
        )
        return InputClassLaws.from_laws(
            self.first, self.second, rows, excess=self.excess, classes=classes
        )

    @cached_property
    def _alone(self) -> InputClassLaws:
        """Laws used only to evaluate one report alone; the laws of the others do not matter."""
        return InputClassLaws.from_laws(
            self.first, self.second, np.stack([self.first, self.second]), excess=self.excess
        )

    @cached_property
    def mixed(self) -> mixed_groups_bound.MixedGroupLaws | None:
        """The other people whose laws the bound uses, divided into parts; None without any."""
        choice = choose_groups(self._groups, self.gap) if self.others else None
        if choice is None:
            return None
        return mixed_groups_bound.MixedGroupLaws(
            tuple(
                mixed_groups_bound.GroupPart(
                    self._laws(
                        np.concatenate([self.others[choice.mixed[place]][0] for place in part])
                    ),
                    sum(self.others[choice.mixed[place]][1] for place in part),
                    float(choice.coins[list(part)].min()),
                )
                for part in _parts(choice, mixed_groups_bound.MAX_PARTS)
            )
        )

    @cached_property
    @theorem("metricshuffle", "blanket of people with different coins")
    def covered(self) -> tuple[BlanketLaw, int] | None:
        """The blanket and the number of people, including this one, who may draw from it.

        Statement: if the law of every other person i is at least c_i times one law B, the
        divergence is at most the blanket expression of g B, with g the geometric mean of the c_i.
        Proof: docs/proofs/groups.md. In short: the divergence decreases as the number of people who
        drew from B grows, and for a given product of the c_i that number is stochastically smallest
        if all c_i are equal.
        Conditions: as for `accounting.shuffling.blanket_bound.delta_bracket`.
        Reference: docs/proofs/groups.md.
        """
        choice = choose_blanket(self._groups, self.gap) if self.others else None
        if choice is None:
            return None
        people = [many for _, many in self.others]
        law = BlanketLaw(
            choice.mean(people) * choice.shape,
            self.first,
            self.second,
            self.gap if self.excess is not None else np.empty(0),
        )
        return law, 1 + sum(people[h] for h in choice.mixed)

    def delta(self, epsilon: float, enough: float = 0.0) -> BoundResult:
        """Return the smallest bound at this epsilon, or any bound that is at most `enough`."""
        directions = [
            direction
            for direction in (self._alone, self._alone.reversed)
            if epsilon < direction.pure
        ]
        best = BoundResult(
            min(1.0, max((direction.at(epsilon).local for direction in directions), default=0.0)),
            "local",
            "local",
        )
        if self.mixed is not None and best.value > 0.0:
            best = best.smaller_of(
                BoundResult(
                    never_small(mixed_groups_bound.delta_upper(self.mixed, epsilon, enough=enough)),
                    self.beyond,
                    "contour",
                )
            )
        if self.covered is not None and best.value > enough:
            bracket = blanket.delta_bracket(*self.covered, epsilon, relative=ROUGH_TOLERANCE)
            best = best.smaller_of(
                BoundResult(never_small(bracket.upper), self.blanket, bracket.evaluator)
            )
        return best

    def epsilon(self, delta: float, relative: float) -> BoundResult:
        """Return the smallest certified epsilon at this delta."""
        best = BoundResult(max(self._alone.pure, self._alone.reversed.pure), "local", "local")
        if self.mixed is not None and best.value > 0.0:
            best = best.smaller_of(
                BoundResult(
                    never_small(
                        mixed_groups_bound.epsilon_upper(self.mixed, delta, relative=relative)
                    ),
                    self.beyond,
                    "contour",
                )
            )
        if self.covered is not None and best.value > 0.0:
            law, users = self.covered
            if (
                not blanket.delta_bracket(
                    law, users, min(best.value * WIN_RATIO, 1e6), relative=0.05
                ).lower
                > delta
            ):
                value = never_small(blanket.epsilon_upper(law, users, delta, relative=relative))
                best = best.smaller_of(BoundResult(value, self.blanket, "contour"))
        return best


def _parts(choice: CommonComponent, many: int) -> list[tuple[int, ...]]:
    """Divide the chosen groups into `many` parts of similar weights, cut at the largest gaps."""
    order = np.argsort(-choice.coins, kind="stable")
    steps = -np.diff(np.log(choice.coins[order]))
    cuts = sorted(int(place) + 1 for place in np.argsort(-steps, kind="stable")[: many - 1])
    return [
        tuple(int(place) for place in order[low:high])
        for low, high in itertools.pairwise([0, *cuts, len(order)])
    ]


@theorem("metricshuffle", "clone pair among people of different local epsilons")
def clone_groups_pair(own: float, others: Sequence[tuple[float, int]]) -> MixedGroupsPair:
    """Return the clone pair of any randomizers with local epsilon `own` and those of `others`.

    `others` are pairs (local epsilon, people).

    Statement: let p = e^own and q_i = e^max(own, epsilon_i), with epsilon_i the local epsilon of
    another person i, and suppose K_i >= max(K_a, K_b)/q_i for everyone else. Then the divergence is
    at most that of a bit under randomized response with ratio p among people who each add a fair
    bit with probability 2p/((p+1) q_i), and otherwise nothing.
    Proof: docs/proofs/groups.md.
    Conditions: as stated. It is NOT enough that everyone's own randomizer is epsilon_i-private:
    reports of another group need not look like this person's reports at all. The condition holds if
    all laws, of whatever group, differ by a factor of at most e^(the larger epsilon), as those of
    k-ary responses do.
    Numerics: probabilities of a fair bit are rounded down.
    """
    half = 1.0 / (1.0 + math.exp(-own))
    low = math.exp(-own) * half
    first = np.array([half, low, 0.0])
    second = np.array([low, half, 0.0])
    excess = np.array([math.tanh(0.5 * own), -math.tanh(0.5 * own), 0.0])
    crowd = []
    for epsilon, people in others:
        pair = ClonePair(own, max(own, epsilon), max(own, epsilon))
        clone = pair.clone_masses[0] * (1.0 - 1e-15)
        if clone >= MIN_MASS:
            crowd.append((np.array([[clone, clone, 1.0 - 2.0 * clone]]), people))
    return MixedGroupsPair(first, second, tuple(crowd), excess, "clones", "clones")


@dataclass(frozen=True)
class MixedGroupsProfile(PrivacyProfile):
    """Privacy profile of a member of one group.

    pairs(distance) returns pairs that represent all pairs up to a distance.
    """

    pairs: Callable[[float], Sequence[MixedGroupsPair]]
    local: PrivacyProfile
    relative: float
    bound: str = "best"
    _known: dict[float, list[MixedGroupsPair]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def pure(self, distance: float) -> float:
        return self.local.pure(distance)

    def ranked(self, distance: float) -> list[MixedGroupsPair]:
        """Return the pairs, those that look worst first."""
        if distance not in self._known:
            self._known[distance] = sorted(self.pairs(distance), key=lambda pair: -pair.spread)
        return self._known[distance]

    def delta(self, epsilon: float, distance: float) -> float:
        return self.delta_winner(epsilon, distance).value

    def epsilon(self, delta: float, distance: float) -> float:
        return self.epsilon_winner(delta, distance).value

    def delta_winner(self, epsilon: float, distance: float) -> BoundResult:
        """Return the largest delta of the pairs, each by its smallest bound."""
        epsilon = checked_epsilon(epsilon)
        distance = validate_distance(distance)
        worst = BoundResult(0.0, "local", "local")
        if epsilon >= self.pure(distance):
            return worst
        for pair in self.ranked(distance) if distance else []:
            # A copy, so that cached values of thousands of pairs are freed.
            bound = replace(pair).delta(epsilon)
            worst = bound if not bound.value <= worst.value else worst
        return worst

    def epsilon_winner(self, delta: float, distance: float) -> BoundResult:
        """Return the largest epsilon of the pairs, starting with the pair that looks worst."""
        delta = checked_delta(delta)
        distance = validate_distance(distance)
        ceiling = BoundResult(self.pure(distance), "local", "local")
        if delta == 0.0 or ceiling.value == 0.0:
            return ceiling
        worst = BoundResult(0.0, "local", "local")
        for place, ranked_pair in enumerate(self.ranked(distance)):
            pair = replace(ranked_pair)
            if place == 0 or not pair.delta(worst.value, delta).value <= delta:
                bound = pair.epsilon(delta, max(self.relative, MIN_EPSILON_TOLERANCE))
                worst = bound if not bound.value <= worst.value else worst
        return ceiling.smaller_of(worst)

"""Groups of people with different randomizers, and dummies that the shuffler adds.

`Groups` describes them, and `amplify` returns a `GroupsAmplification` with one guarantee for a
member of each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from metricshuffle.accounting.composition.composed_profile import compose_rounds
from metricshuffle.amplification.amplify import (
    GENERIC_LABEL,
    Amplification,
    AmplifiedBand,
    GenericLDP,
    amplify,
    pairs_name,
)
from metricshuffle.amplification.lower_bound import information, relative_tolerance_for
from metricshuffle.amplification.mixed_groups_lower import MixedDataSet, MixedGroupsLower
from metricshuffle.amplification.mixed_groups_upper import (
    MixedGroupsPair,
    MixedGroupsProfile,
    OtherGroups,
    clone_groups_pair,
)
from metricshuffle.amplification.real_valued_pairs import real_pairs, takes_real_numbers
from metricshuffle.display import Plottable, one_line_repr, plot_result
from metricshuffle.errors import InputError, NotCertified, owner
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomizers.dyadic_weights import TOTAL_WEIGHT, exp_below
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer, has_law_of

Named = Randomizer | GenericLDP
MAX_ENTRIES = 2**20  # max entries of a matrix of laws
MAX_PAIRS = 2**12
MAX_PEOPLE = 10**13
UNIFORM = "uniform"


def _count(count: object, whose: str) -> int:
    if (
        isinstance(count, bool)
        or not isinstance(count, int | np.integer)
        or not 0 <= count <= MAX_PEOPLE
    ):
        raise InputError(
            f"{owner('Groups')}{whose} must have a whole number of people from 0 to 1e13, "
            f"got {count!r}."
        )
    return int(count)


class Groups:
    """Groups of honest people, each with its randomizer, and dummies that the shuffler adds.

    `groups` are (randomizer, number of honest people), `dummies` (law, number of reports drawn from
    it). All must have the same reports with the same codes. A law of dummies is "uniform", a list
    of probabilities, or a `Channel` with one row; the shuffler is trusted to add them. Pass it to
    `amplify` without a number of users: there is one guarantee for a member of each group, who
    hides among the others of all groups.
    """

    def __init__(
        self, groups: Sequence[tuple[Named, int]], dummies: Sequence[tuple[object, int]] = ()
    ) -> None:
        self.given: tuple[tuple[Named, int], ...] = tuple(
            (self._checked(randomizer), _count(count, f"group {place}"))
            for place, (randomizer, count) in enumerate(groups, start=1)
        )
        if not any(count for _, count in self.given):
            raise InputError(f"{owner('Groups')}at least one group must have members.")
        generic = [isinstance(randomizer, GenericLDP) for randomizer, _ in self.given]
        if any(generic) and (not all(generic) or dummies):
            raise InputError(
                f"{owner('Groups')}a group known by its local epsilon only can be mixed with other "
                "such groups, not with a named "
                "randomizer or with dummies, because their reports need not be "
                "alike. Name its randomizer."
            )
        if any(
            isinstance(randomizer, GenericLDP) and randomizer.delta for randomizer, _ in self.given
        ):
            raise InputError(
                f"{owner('Groups')}groups known by their local epsilon only must have "
                "local delta 0; name their randomizers instead."
            )
        self.dummies = tuple((self._law(law), _count(count, "dummies")) for law, count in dummies)
        for place, (randomizer, _) in enumerate(self.given, start=1):
            if isinstance(randomizer, Randomizer) and randomizer.outputs != self.reports:
                raise InputError(
                    f"{owner('Groups')}all groups must have the same reports, but group {place} "
                    f"({describe_randomizer(randomizer)}) has "
                    f"{randomizer.outputs:,} and the "
                    f"first {self.reports:,}; reports that differ reveal who is in which "
                    "group, so account for each group alone."
                )

    @staticmethod
    def _checked(group: object) -> Named:
        if not isinstance(group, Randomizer | GenericLDP):
            raise InputError(
                f"{owner('Groups')}a group is (randomizer, count), see "
                f"metricshuffle.randomizers; got {type(group).__name__}."
            )
        if isinstance(group, Randomizer) and group.inputs < 2:
            raise InputError(
                f"{owner('Groups')}a randomizer with one input has no secret; give its "
                "law and count as dummies."
            )
        return group

    def _law(self, law: object) -> Channel:
        if isinstance(law, str) and law != UNIFORM:
            raise InputError(
                'Groups: a law of dummies is "uniform" or probabilities of the reports, '
                f"got {law!r}."
            )
        if isinstance(law, str):
            law = Channel(np.full((1, self.reports), 1.0 / self.reports))
        channel = law if isinstance(law, Channel) else Channel([law])
        if channel.inputs != 1 or channel.outputs != self.reports:
            raise InputError(
                f"{owner('Groups')}a law of dummies must have one probability for each of the "
                f"{self.reports:,} reports, got "
                f"{channel.inputs} x {channel.outputs}."
            )
        return channel

    @property
    def reports(self) -> int:
        """Number of different reports (2 for randomizers known only by their local epsilon)."""
        first = self.given[0][0]
        return first.outputs if isinstance(first, Randomizer) else 2

    @property
    def users(self) -> int:
        """Number of people, without the dummies."""
        return sum(count for _, count in self.given)

    @cached_property
    def people(self) -> tuple[tuple[Named, int], ...]:
        """The groups in a canonical order, equal randomizers merged, without empty groups.

        All answers are computed from these.
        """
        counts: dict[Named, int] = {}
        for randomizer, count in self.given:
            counts[randomizer] = counts.get(randomizer, 0) + count
        return tuple(
            sorted(
                ((randomizer, count) for randomizer, count in counts.items() if count),
                key=lambda group: _sort_key(group[0]),
            )
        )

    @cached_property
    def _folded(self) -> bool:
        """Whether all randomizers are k-ary responses and all dummies are uniform.

        Options other than a and b are then equivalent.
        """
        return all(
            has_law_of(randomizer, KaryRandomizedResponse) for randomizer, _ in self.people
        ) and all(
            not count or bool(np.all(law.rows() == law.rows()[0, 0])) for law, count in self.dummies
        )

    def _options(self) -> list[int]:
        """Count the reports merged into each folded report: a, b, a third option, the rest."""
        return [many for many in (1, 1, min(1, self.reports - 2), self.reports - 3) if many > 0]

    def _folded_rows(self, randomizer: KaryRandomizedResponse) -> list[list[Fraction]]:
        sizes = self._options()
        return [
            [
                many * Fraction(randomizer.keep if x == y else randomizer.other, TOTAL_WEIGHT)
                for y, many in enumerate(sizes)
            ]
            for x in range(min(3, len(sizes)))
        ]

    def rows(self, randomizer: Randomizer) -> Floats:
        """Return the laws of the inputs that the people of a group may hold."""
        if self._folded and has_law_of(randomizer, KaryRandomizedResponse):
            return np.array(
                [[float(value) for value in row] for row in self._folded_rows(randomizer)]
            )
        if randomizer.inputs * randomizer.outputs > MAX_ENTRIES:
            raise NotCertified(
                f"groups of {describe_randomizer(randomizer)} have {randomizer.inputs:,} x "
                f"{randomizer.outputs:,} laws, more than "
                "2^20; take fewer inputs or a coarser grid."
            )
        return randomizer.rows()

    def pairs(
        self, randomizer: Randomizer, distance: float
    ) -> Iterator[tuple[Floats, Floats, Floats | None]]:
        """Yield the two laws of pairs that represent all pairs up to the distance.

        The third item is the difference of the laws if it is known more precisely than they are.
        """
        rows = self.rows(randomizer)
        if self._folded and has_law_of(randomizer, KaryRandomizedResponse):
            exact = self._folded_rows(randomizer)
            yield (
                rows[0],
                rows[1],
                np.array([float(x - y) for x, y in zip(exact[0], exact[1], strict=True)]),
            )
            return
        if takes_real_numbers(randomizer):
            pair_rows, both = real_pairs(randomizer, distance)
            listed = [pair for pair in both if pair[0] < pair[1]]
        else:
            reach, codes, pair_rows = distance * (1.0 + 1e-12), range(randomizer.inputs), rows
            listed = [
                (a, b) for a in codes for b in codes if a < b and randomizer.distance(a, b) <= reach
            ]
        if len(listed) > MAX_PAIRS:
            raise NotCertified(
                f"{describe_randomizer(randomizer)} has {len(listed):,} pairs of inputs, "
                f"more than {MAX_PAIRS:,}; take fewer "
                "inputs, a coarser grid or a "
                "smaller distance."
            )
        for a, b in listed:
            yield pair_rows[a], pair_rows[b], None

    def _dummy_rows(self) -> Iterator[tuple[Floats, int]]:
        for law, count in self.dummies:
            row = law.rows()
            if count:
                yield (
                    (
                        np.array([[float(many * row[0, 0]) for many in self._options()]])
                        if self._folded
                        else row
                    ),
                    count,
                )

    def others(self, member: Named) -> OtherGroups:
        """Return everyone but one member of a group."""
        groups = [
            (self.rows(randomizer), count - (randomizer == member))
            for randomizer, count in self.people
            if isinstance(randomizer, Randomizer)
        ]
        return tuple((rows, count) for rows, count in (*groups, *self._dummy_rows()) if count)

    def __repr__(self) -> str:
        return one_line_repr(
            "Groups", [(None, self.given), *([("dummies", self.dummies)] if self.dummies else [])]
        )

    def amplified(self, *, rounds: int = 1, relative: float | None = None) -> GroupsAmplification:
        """Return the answer of `amplify`."""
        alone = len(self.people) == 1 and not any(count for _, count in self.dummies)
        added = sum(count for _, count in self.dummies)
        answers_by_randomizer = {}
        for randomizer, count in self.people:
            if alone:
                answers_by_randomizer[randomizer] = amplify(
                    randomizer, count, rounds=rounds, relative=relative
                )
            else:
                answers_by_randomizer[randomizer] = (
                    _amplify_generic(self, randomizer, rounds)
                    if isinstance(randomizer, GenericLDP)
                    else _amplify_named(self, randomizer, rounds, relative)
                )
        answers: list[Amplification | None] = []
        for place, (randomizer, _) in enumerate(self.given, start=1):
            if randomizer in answers_by_randomizer:
                count = dict(self.people)[randomizer]
                people = "1 person" if count == 1 else f"{count:,} people"
                answers.append(
                    replace(
                        answers_by_randomizer[randomizer],
                        dummies=added,
                        member=(
                            f"a member of group {place} ({describe_randomizer(randomizer)}, "
                            f"{people})"
                        ),
                    )
                )
            else:
                answers.append(None)
        return GroupsAmplification(self, tuple(answers))


def _sort_key(randomizer: Named) -> str:
    return (
        f"{type(randomizer).__name__} "
        f"{randomizer.model_dump() if isinstance(randomizer, Randomizer) else randomizer}"
    )


def describe_randomizer(randomizer: Named) -> str:
    """Describe a randomizer by its kind and its numbers."""
    if isinstance(randomizer, GenericLDP):
        return f"any randomizer of local epsilon {randomizer.epsilon:g}"
    numbers = {
        name: value
        for name, value in randomizer.model_dump().items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    kind = randomizer.model_dump().get("kind", type(randomizer).__name__)
    return f"{kind}{''.join(f', {name} {value:g}' for name, value in numbers.items())}"


def _amplify_named(
    groups: Groups, member: Randomizer, rounds: int, relative: float | None
) -> Amplification:
    others = groups.others(member)

    def pairs(distance: float) -> list[MixedGroupsPair]:
        return [
            MixedGroupsPair(first, second, others, excess)
            for first, second, excess in groups.pairs(member, distance)
        ]

    closely = (
        1e-3
        if rounds > 1
        else relative_tolerance_for(groups.users)
        if relative is None
        else relative
    )
    upper = MixedGroupsProfile(pairs, member.local_profile(), closely)

    def data_sets(distance: float) -> list[MixedDataSet]:
        return [data for pair in upper.ranked(distance)[:1] for data in _data_sets(pair)]

    return Amplification(
        compose_rounds(upper, rounds),
        MixedGroupsLower(data_sets),
        groups.users,
        member.diameter,
        upper.local,
        rounds,
        pairs_name(member),
    )


def _data_sets(pair: MixedGroupsPair) -> list[MixedDataSet]:
    """Return data sets in which all members of a group hold the same input.

    The input is the one that hides least, or the one whose law is closest to the first, or to the
    second, law of the pair.
    """
    choices = [[information(pair.first, pair.second, rows) for rows, _ in pair.others]]
    choices += [
        [-np.abs(rows / rows.max() - law / law.max()).sum(axis=1) for rows, _ in pair.others]
        for law in (pair.first, pair.second)
    ]
    picked = {tuple(int(np.argmax(scores)) for scores in choice) for choice in choices}
    return [
        MixedDataSet(
            pair.first,
            pair.second,
            tuple(
                (rows[x], people)
                for x, (rows, people) in zip(inputs_held, pair.others, strict=True)
            ),
        )
        for inputs_held in sorted(picked)
    ]


def _amplify_generic(groups: Groups, member: GenericLDP, rounds: int) -> Amplification:
    """Bound with the clone pair from above, and with 2-RR and 3-RR from below."""
    others = [
        (randomizer.epsilon, count - (randomizer == member))
        for randomizer, count in groups.people
        if isinstance(randomizer, GenericLDP)
    ]
    pair = clone_groups_pair(
        member.epsilon, [(epsilon, count) for epsilon, count in others if count]
    )
    local: PrivacyProfile = PureProfile(member.epsilon)
    upper = MixedGroupsProfile(lambda distance: [pair], local, relative_tolerance_for(groups.users))

    def rows(options: int, epsilon: float) -> Floats:
        ratio = exp_below(epsilon)
        exact = [[ratio if x == y else Fraction(1) for y in range(options)] for x in range(options)]
        return np.array([[float(value / (ratio + options - 1)) for value in row] for row in exact])

    data = []
    for options in (2, 3):
        own = rows(options, member.epsilon)
        crowd = tuple((rows(options, epsilon), count) for epsilon, count in others if count)
        data += _data_sets(MixedGroupsPair(own[0], own[1], crowd))
    return Amplification(
        compose_rounds(upper, rounds),
        MixedGroupsLower(lambda _: data, GENERIC_LABEL),
        groups.users,
        1.0,
        local,
        rounds,
        "any two inputs",
    )


@dataclass(frozen=True, eq=False)
class GroupsAmplification(Plottable):
    """The guarantee (upper) and lower bound of a member of each group, in the order given.

    An empty group has no member and no answer: None.
    """

    groups: Groups
    answers: tuple[Amplification | None, ...]

    def __repr__(self) -> str:
        return one_line_repr("GroupsAmplification", [("groups", self.groups.given)])

    def plot(self, *, distance: float | None = None) -> Any:
        """Plot upper and lower epsilon of each group against delta.

        They hold for inputs at most `distance` apart (default: any two).
        """
        return plot_result(self, distance=distance)

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[Amplification]:
        return (answer for answer in self.answers if answer is not None)

    def __getitem__(self, place: int) -> Amplification:
        """Return the answer for a group, counting from 0."""
        answer = self.answers[place]
        if answer is None:
            raise InputError(
                f"group {place + 1} has no members, so it has no guarantee; give it a count."
            )
        return answer

    def epsilon(self, delta: float, distance: float | None = None) -> list[AmplifiedBand | None]:
        """Return the band of the total epsilon at this delta for a member of each group."""
        return [
            None if answer is None else answer.epsilon(delta, distance) for answer in self.answers
        ]

    def delta(self, epsilon: float, distance: float | None = None) -> list[AmplifiedBand | None]:
        """Return the band of delta at this total epsilon for a member of each group."""
        return [
            None if answer is None else answer.delta(epsilon, distance) for answer in self.answers
        ]

    def explain(
        self,
        delta: float | None = None,
        distance: float | None = None,
        *,
        epsilon: float | None = None,
    ) -> str:
        """Explain the answer for each group in a sentence or two."""
        return "\n".join(
            [
                *(answer.explain(delta, distance, epsilon=epsilon) for answer in self),
                *filter(None, (self.remark,)),
            ]
        )

    @property
    def remark(self) -> str:
        """The condition under which the answer holds; may be empty."""
        if len(self.groups.people) == 1 or not isinstance(self.groups.people[0][0], GenericLDP):
            return ""
        return (
            "This counts on the reports of different groups being alike: the probabilities "
            "that any two people give a report must be "
            "within a factor e^E of each other, E the larger of their two local epsilons, "
            "as they are for k-ary responses."
        )

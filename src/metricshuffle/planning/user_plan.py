"""Target -> UserPlan, for queries about users who hold many items. The saved plan IS the task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.items.user_level import full_replacement_sentence
from metricshuffle.errors import BatchTooSmall, InputError, PlanError
from metricshuffle.planning.candidate import TRUST_ORDER
from metricshuffle.planning.saved import ChosenPlan
from metricshuffle.planning.user_candidates import TRUSTED, UserCandidate, UserSetting, candidates
from metricshuffle.planning.user_release import UserRelease
from metricshuffle.privacy.guarantee import plain, promised
from metricshuffle.privacy.target import Target, checked_users, honest_count
from metricshuffle.protocols.base import Reports, Shuffled
from metricshuffle.protocols.frequencies import Inversion, simplex_projection
from metricshuffle.protocols.tree_projection import possible_shares, shares_from_subtrees
from metricshuffle.protocols.user_queries import AnyUserQuery, UserHistogram, UserQuery
from metricshuffle.randomizers.randomizer import counted, smallest_type
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import TreeEmbedding

Trusted = Literal["nobody", "shuffler", "curator"]
Floats = NDArray[np.float64]


class UserPlan(ChosenPlan[UserCandidate]):
    """A calibrated choice for a query about users' items, with everything the roles need."""

    known_as: ClassVar[str] = "metricshuffle-user-plan/1"
    format: Literal["metricshuffle-user-plan/1"] = "metricshuffle-user-plan/1"
    query: AnyUserQuery
    target: Target
    users: int
    honest: int
    samples: int | None = None
    trusted: Trusted
    not_offered: tuple[tuple[str, str], ...] = ()

    @property
    def minimum(self) -> int:
        """The smallest number of users the guarantee covers."""
        return self.honest if self.choice.model == "shuffled" else 1

    @property
    def short_distance(self) -> str:
        """What a distance below that of the nearest points means, in words; empty if it is not below."""
        nearest, distance = self.query.people.nearest, self.target.distance
        if distance >= nearest * (1.0 - 1e-12):
            return ""
        unit = f" {self.query.unit}" if self.query.unit else ""
        return (
            f"different points are at least {plain(nearest)}{unit} apart, so that a move of {plain(distance)}{unit} is one of "
            f"{plain(100.0 * distance / nearest)} % of a user's items at most; who holds few items has no change that small."
        )

    def check_batch(self, users: int) -> None:
        """Raise unless the guarantee covers a batch of that many users."""
        if users < self.minimum or users < 1:
            raise BatchTooSmall(
                f"the batch has {users:,} users, but the guarantee counts on at least {self.minimum:,} honest ones; "
                f"wait for more, or plan again counting on {max(users, 1):,} honest ones and let people randomize again."
            )

    def randomize(self, people: Any, randomness: Randomness | None = None) -> Reports:
        """Clients: one record a user. `people` is a list of item lists, or an array with a row for each user."""
        source = Randomness.system() if randomness is None else randomness
        if self.choice.model == "central":
            raise PlanError("the curator's noise is added once, to everybody's items together: use run(people), or plan with less trust.")
        if self.choice.noise is not None:
            return Reports(self.digest, self.choice.noise.on_each(self.query.answers(people), source), source.unsafe_seeded)
        randomizer, items = self._randomizer, self.query.people.items
        codes, sizes = self.query.people.coded(people)
        if items is None:
            codes, items = self._drawn(codes, sizes, source), int(self.samples or 1)
        reports = np.asarray(randomizer.codes_of(randomizer.reports(randomizer.values_of(codes), source)))
        # A user's reports in the order of her items would tell more than their multiset, which is what is accounted for.
        records = np.sort(reports.astype(smallest_type(randomizer.outputs)).reshape(-1, items), axis=1)
        return Reports(self.digest, records, source.unsafe_seeded)

    def _drawn(self, codes: NDArray[np.int64], sizes: NDArray[np.int64], source: Randomness) -> NDArray[np.int64]:
        """`samples` of each user's items, with replacement."""
        starts = np.repeat(np.cumsum(sizes) - sizes, int(self.samples or 1))
        picks = np.concatenate([source.uniform_residues(int(self.samples or 1), int(size)) for size in sizes])
        return np.asarray(codes[starts + picks.astype(np.int64)])

    @property
    def _randomizer(self) -> Any:
        if self.choice.randomizer is None:
            raise PlanError("this plan randomizes answers and not items.")
        return self.choice.randomizer

    def shuffle(self, reports: Reports | Iterable[Reports]) -> Shuffled:
        """Shuffler: sums of the noisy answers, or how often each report occurs; refuses too few users. Reports may come in parts."""
        width = self.choice.noise.coordinates if self.choice.noise is not None else self._items
        users, seeded = 0, False
        sums = [0] * width if self.choice.noise is not None else None
        counts = np.zeros(0 if sums is not None else self._randomizer.outputs, dtype=np.int64)
        for batch in [reports] if isinstance(reports, Reports) else reports:
            if not isinstance(batch, Reports):
                raise InputError(f"only Reports can be shuffled, got {type(batch).__name__}.")
            if batch.plan != self.digest:
                raise PlanError("these reports were made for another plan (the digests differ); use the plan the clients used.")
            if batch.records.ndim != 2 or batch.records.shape[1] != width or batch.records.dtype.kind not in "iu":
                raise PlanError(f"a record of this plan is {width:,} whole numbers, got an array of shape {batch.records.shape}.")
            if sums is not None:
                sums = [one + sum(column.tolist()) for one, column in zip(sums, batch.records.T, strict=True)]
            else:
                counts = counts + counted(batch.records.ravel(), self._randomizer.outputs)
            users, seeded = users + len(batch.records), seeded or batch.unsafe_seeded
        self.check_batch(users)
        return Shuffled(self.digest, users, tuple(sums) if sums is not None else (counts.astype(np.uint64),), seeded)

    @property
    def _items(self) -> int:
        return int(self.query.people.items or self.samples or 1)

    def estimate(self, shuffled: Shuffled, *, raw_values_seen: bool = False) -> UserRelease:
        """Analyst: the answer with its errors and both guarantees."""
        if not isinstance(shuffled, Shuffled):
            raise InputError(f"estimate needs what shuffle() returned, got {type(shuffled).__name__}; reports must be shuffled first.")
        if shuffled.plan != self.digest:
            raise PlanError("this batch was shuffled for another plan (the digests differ).")
        self.check_batch(shuffled.reports)
        if self.choice.noise is None:
            return self._from_items(shuffled, raw_values_seen)
        cells = [axis for axis in shuffled.axes if isinstance(axis, int)]
        if len(cells) != self.choice.noise.coordinates:
            raise PlanError(f"a batch of this plan is {self.choice.noise.coordinates:,} sums; this one is not.")
        means = self.choice.noise.middles(cells, shuffled.reports) / shuffled.reports
        error = math.sqrt(self.choice.noise.variance / shuffled.reports)
        return self._released(means, np.full(len(means), error), shuffled.reports, raw_values_seen, shuffled.unsafe_seeded)

    def _from_items(self, shuffled: Shuffled, raw_values_seen: bool) -> UserRelease:
        counts = shuffled.axes[0] if len(shuffled.axes) == 1 else 0
        total = shuffled.reports * self._items
        if isinstance(counts, int) or counts.shape != (self._randomizer.outputs,) or int(counts.sum()) != total:
            raise PlanError(f"a batch of this plan is {self._randomizer.outputs:,} counts that sum to {total:,}; this one is not.")
        inversion = Inversion.of(self._randomizer)
        shares = inversion.totals(counts.astype(np.float64)) / total
        possible = possible_shares(TreeEmbedding.of(self.query.people.items_in), shares)
        spread = inversion.variances(possible)
        if self.query.people.items is None:  # which of her items a user drew: at most as if all drew from the same shares
            spread = spread + possible * (1.0 - possible)
        errors = np.sqrt(total * spread + inversion.largest_variances) / total
        return self._release(possible, shares, errors, shuffled.reports, raw_values_seen, shuffled.unsafe_seeded)

    def _released(self, means: Floats, errors: Floats, users: int, raw_values_seen: bool, seeded: bool) -> UserRelease:
        """From noisy means of the coordinates."""
        if not isinstance(self.query, UserHistogram):
            means = means + self.query.coordinates.middle
            return self._release(means, means, errors, users, raw_values_seen, seeded)
        if not self.query.has_tree:
            return self._release(simplex_projection(means), means, errors, users, raw_values_seen, seeded)
        lengths = self.query.tree.lengths
        shares = shares_from_subtrees(self.query.tree, means)
        return self._release(shares, means / lengths, errors / lengths, users, raw_values_seen, seeded)

    def _expected_error(self, users: int) -> float:
        """For as many users as there were, who may be more or fewer than planned."""
        from metricshuffle.planning.user_simulation import expected_error

        if users == self.users:
            return self.choice.expected_error
        return expected_error(UserSetting(self.query, self.target, users, self.honest, self.samples), self.choice)

    def _release(self, value: Floats, measured: Floats, errors: Floats, users: int, raw_values_seen: bool, seeded: bool) -> UserRelease:
        return UserRelease(
            query=self.query, method=self.choice.name, model=self.choice.model, value=tuple(value.tolist()),
            measured=tuple(measured.tolist()), standard_errors=tuple(errors.tolist()), expected_error=self._expected_error(users),
            users=users, guarantee=self.choice.guarantee, if_shuffler_colludes=self.choice.fallback,
            raw_values_seen=raw_values_seen, unsafe_seeded=seeded, plan=self.digest,
            warning=" ".join(words for words in (self.choice.warning, self.short_distance) if words),
        )  # fmt: skip

    def run(self, people: Any, randomness: Randomness | None = None) -> UserRelease:
        """All roles on one machine; the release says that raw items were seen there."""
        if self.choice.model != "central":
            return self.estimate(self.shuffle(self.randomize(people, randomness)), raw_values_seen=True)
        source, noise = (Randomness.system() if randomness is None else randomness), self.choice.noise
        if noise is None:
            raise PlanError("a curator adds noise to answers, but this plan has none: it was damaged; make the plan again.")
        answers = self.query.answers(people)
        users = len(answers.sizes)
        means = noise.middles(noise.on(answers.total(), source), 1) / users
        errors = np.full(len(means), math.sqrt(noise.variance) / users)
        return self._released(means, errors, users, True, source.unsafe_seeded)

    def __str__(self) -> str:
        unit = f" {self.query.unit}" if self.query.unit else ""
        what = "earth mover's distance" if isinstance(self.query, UserHistogram) else "mean absolute error"
        lines = [f"{self.query}, {self.users:,} users ({self.honest:,} honest), {self.target}"]
        for index, one in enumerate(self.candidates):
            mark = "->" if index == self.chosen else "  " if TRUST_ORDER[TRUSTED[one.model]] <= TRUST_ORDER[self.trusted] else " *"
            alone = "raw items seen" if one.model == "central" else f"epsilon {promised(one.fallback.epsilon)} if everyone else colludes"
            item = f", item rate {plain(one.item_rate)}" if one.item_rate is not None else ""
            lines.append(f"{mark} {one.name} ({one.model}): expected {what} {plain(one.expected_error)}{unit}{item}, {alone}")
        if any(TRUST_ORDER[TRUSTED[one.model]] > TRUST_ORDER[self.trusted] for one in self.candidates):
            lines.append(" * needs more trust than allowed: for comparison only")
        lines += [f"   {name} is not offered: {reason}" for name, reason in self.not_offered]
        lines += [f"Warning: {one.warning}" for one in self.candidates if one.warning]
        lines += [f"Warning: {self.short_distance}"] if self.short_distance else []
        lines.append(str(self.choice.guarantee))
        if self.choice.model == "shuffled":
            lines += [f"If the shuffler is not honest: {self.choice.fallback}"]
            lines += [f"The promise counts {self.honest:,} honest users of {self.users:,}: a batch of fewer users is refused."]
        lines.append(full_replacement_sentence(self.choice.guarantee, self.query.diameter))
        return "\n".join(
            [*lines, "Not hidden: that somebody took part, how many did, and anything a lying client sends to move the answer."]
        )


def plan_users(
    query: UserQuery, target: Target, users: int, honest: int | float | str | None = None, *, trusted: Trusted = "shuffler",
    samples: int | None = None, methods: Sequence[str] | None = None,
) -> UserPlan:  # fmt: skip
    """Calibrate every way that fits (or only the `methods` of these names); choose the least expected error for the trust allowed.

    `samples`: users hold different numbers of items, and everybody draws so many of hers, with replacement, for the item-wise way.
    """
    users = checked_users(users)
    if not isinstance(query, UserQuery) or not isinstance(target, Target):
        raise InputError(
            "plan_users needs a query (UserHistogram or UserLinearQuery) and a Target, got "
            f"{type(query).__name__} and {type(target).__name__}."
        )
    if isinstance(methods, str):
        raise InputError(f"methods must be a list of names, such as [{methods!r}].")
    if trusted not in ("nobody", "shuffler", "curator"):
        raise InputError(f"trusted must be 'nobody', 'shuffler' or 'curator' for users' items, got {trusted!r}.")
    if target.distance > query.diameter * (1.0 + 1e-12):
        raise InputError(
            f"distance {plain(target.distance)} is beyond the largest earth mover's distance, "
            f"{f'{plain(query.diameter)} {query.unit}'.strip()}; use at most that."
        )
    nearest, items = query.people.nearest, query.people.items
    if items is not None and target.distance * items < nearest * (1.0 - 1e-12):
        raise InputError(
            f"distance {plain(target.distance)} is less than the smallest move, "
            f"{f'{plain(nearest / items)} {query.unit}'.strip()}: one of {items:,} items to the "
            "nearest point; nothing would be promised, so use at least that."
        )
    if samples is not None and (
        query.people.items is not None or isinstance(samples, bool) or not isinstance(samples, int) or not 1 <= samples <= 10**6
    ):
        raise InputError(f"samples must be a whole number from 1 to 1e6, for users with any number of items, got {samples!r}.")
    setting = UserSetting(query, target, users, honest_count(honest, users), samples)
    found, missing = [], []
    for one in candidates(setting, None if methods is None else frozenset(methods)):
        if isinstance(one, UserCandidate):
            found.append(one)
        else:
            missing.append(one)
    found.sort(key=lambda one: one.expected_error)
    usable = [index for index, one in enumerate(found) if TRUST_ORDER[TRUSTED[one.model]] <= TRUST_ORDER[trusted]]
    if not usable:
        why = "; ".join(f"{name}: {reason.rstrip('.')}" for name, reason in missing[:3])
        raise InputError(f"no way keeps this target here. {why}.")
    return UserPlan(
        query=query, target=target, users=users, honest=setting.honest, samples=samples, trusted=trusted, chosen=usable[0],
        candidates=tuple(found), not_offered=tuple(missing),
    )  # fmt: skip

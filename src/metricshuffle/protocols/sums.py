"""Sums: the protocol in which everyone randomizes a number on each axis, and totals are estimated.

Every person sends messages of equal length, either unary or modular shares (see `encodings`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, SerializerFunctionWrapHandler, model_serializer

from metricshuffle.accounting.sums.additive_noise import TAIL_MARGIN
from metricshuffle.accounting.sums.rare_clamping import RarelyClampedProfile
from metricshuffle.accounting.sums.split_and_mix import SplitAndMix, security_bits
from metricshuffle.encodings import Modular, Unary
from metricshuffle.errors import ConditionError, PlanError, argument
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.noise.binomial_sum import bit_count_range
from metricshuffle.noise.polya import UTILITY_LOG_TAIL, Polya
from metricshuffle.noise.samplers import sample_polya
from metricshuffle.numerics.rounding import round_up
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.guarantee import Guarantee, Protects
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.damage import NO_LIMIT, Damage
from metricshuffle.protocols.place_accounts import PlaceAccounts
from metricshuffle.protocols.protocol import Account, Layout, Protocol, single_person_guarantee
from metricshuffle.protocols.sum_accounts import SumAccounts
from metricshuffle.protocols.tally import Shuffled, Tally
from metricshuffle.protocols.visible_sums import (
    clamped_total,
    honest_reach,
    unwrapped,
    within_window,
)
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer, round_randomly
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomness import Randomness

Randomizer = Annotated[AdditiveRandomizer | CountResponse, Discriminator("kind")]
Accounts = SumAccounts | PlaceAccounts
# Sums of padded noise over up to this many cells are accounted exactly, wider ones by the
# probability of clamping.
EXACT_CELLS = 10_000
# Counts of flipped bits with more values than this (twice what is ever planned) would take minutes
# and are rejected.
MAX_COUNTED = 1_000_000


class Sums(Protocol):
    """A randomizer and an encoding on each axis: unary counts, or residues in shares."""

    kind: Literal["sums"] = "sums"
    randomizers: tuple[Randomizer, ...]
    shares: int = 1
    """Number of residues that a number is split into; without a modulus, messages are unary."""
    rounding: Literal["random"] | None = None
    """"random": real values are rounded at random to units of `step`.

    A unit is `granularity` points of the query along each axis.
    """

    @model_serializer(mode="wrap")
    def _only_what_is_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Digests of tasks made before `rounding` existed cover the dictionary without it.
        written: dict[str, Any] = handler(self)
        if self.rounding is None:
            written.pop("rounding", None)
        return written

    @property
    def encoding(self) -> Literal["unary", "modular"]:
        return "unary" if self.modulus is None else "modular"

    @property
    def encodings(self) -> tuple[Unary | Modular, ...]:
        if self.modulus is not None:
            return (Modular(self.modulus, self.shares, self.trusted),) * len(self.randomizers)
        return tuple(Unary(randomizer.length) for randomizer in self.randomizers)

    @property
    def bits_per_user(self) -> int:
        return sum(encoding.bits_per_user for encoding in self.encodings)

    @property
    def messages_per_user(self) -> int:
        return sum(encoding.messages_per_user for encoding in self.encodings)

    @property
    def grain(self) -> int:
        """Number of steps that are rounded to one cell of the noise."""
        return 1 if self.rounding is not None else self.randomizers[0].granularity

    @property
    def grains(self) -> tuple[int, ...]:
        """Number of the query's whole numbers per cell of the noise, on each axis."""
        return tuple(randomizer.granularity for randomizer in self.randomizers)

    @property
    def layout(self) -> Layout:
        if self.modulus is not None:
            return Layout(
                np.dtype("<u8"), self.shares * len(self.randomizers), len(self.randomizers)
            )
        longest = max(randomizer.length for randomizer in self.randomizers)
        return Layout(_smallest_word(longest), len(self.randomizers), apart=False)

    @property
    def row(self) -> int:
        return len(self.randomizers)

    @property
    def visible(self) -> bool:
        """Whether each person's residue is seen where it is added up, and its range checked."""
        return self.modulus is not None and self.trusted in ("nobody", "curator")

    @property
    def tally_modulus(self) -> int | None:
        """None if residues are visible: added exactly, so that lies cannot wrap a sum around."""
        return None if self.visible else self.modulus

    def current(self, tally: Tally) -> Tally:
        if not self.visible or tally.modulus != self.modulus:
            return tally
        tops = [tally.people * randomizer.top for randomizer in self.randomizers]
        sums = {0: unwrapped(tally.numbers, self.encodings, tops)} if tally.sums else {}
        return replace(tally, sums=sums, modulus=None)

    def reach(self, randomizer: Randomizer) -> int:
        """Cells beyond 0..top up to which a visible number is not clamped (see `honest_reach`)."""
        return 0 if self.trusted == "curator" else honest_reach(randomizer)

    def check_people(self, query: Query, people: int, users: int) -> None:
        if self.modulus is None:
            return
        top = max(randomizer.top for randomizer in self.randomizers)
        if people > users or people * top >= self.modulus:
            room = min(users, (self.modulus - 1) // top)
            raise PlanError(
                f"{people:,} reports are more than this plan's modulus has room for, "
                f"{room:,}; plan again for more people, or "
                f"say whose rows they are if a person has several ({argument('user_column')})."
            )

    # Clients

    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[Any]:
        """One row per person: counts for unary, residues for modular.

        A curator receives the value itself, in cells of the noise.
        """
        columns: list[NDArray[Any]] = []
        for axis, (randomizer, encoding) in enumerate(
            zip(self.randomizers, self.encodings, strict=True)
        ):
            values = np.ascontiguousarray(inputs.numbers[:, axis])
            if self.trusted == "curator":
                reports = round_randomly(values, randomizer.granularity, randomness)
            else:
                reports = randomizer.reports(values, randomness)
            columns.append(
                reports.reshape(-1, 1)
                if isinstance(encoding, Unary)
                else encoding.shares(reports, randomness)
            )
        return np.concatenate(columns, axis=1).astype(self.layout.type, copy=False)

    # Shuffler

    def counted(self, messages: NDArray[Any]) -> dict[int, list[int]]:
        self.check_width(messages)
        width = self.layout.numbers // len(self.randomizers)
        sums = []
        for axis, encoding in enumerate(self.encodings):
            own = messages[:, axis * width : (axis + 1) * width]
            if isinstance(encoding, Unary):
                sums.append(encoding.shuffled_counts(own[:, 0]).ones)
            elif self.visible:
                randomizer = self.randomizers[axis]
                sums.append(clamped_total(own, encoding, randomizer.top, self.reach(randomizer)))
            else:
                sums.append(encoding.total(own.astype(np.uint64, copy=False)))
        return {0: sums}

    def published(self, query: Query, tally: Tally, randomness: Randomness) -> dict[int, list[int]]:
        totals = list(tally.numbers)
        if self.trusted == "curator":
            for axis, randomizer in enumerate(self.randomizers):
                if isinstance(randomizer, AdditiveRandomizer):
                    totals[axis] += int(
                        sample_polya(randomizer.shape, randomizer.exact_rate, 1, randomness)[0]
                    )
        if self.modulus is None:
            return {0: totals}
        if self.visible:
            tops = [tally.people * randomizer.top for randomizer in self.randomizers]
            totals = within_window(totals, self.encodings, tops)
        return {0: [total % self.modulus for total in totals]}

    # Analyst

    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        people = shuffled.people
        counts = shuffled.numbers
        if len(counts) != len(self.randomizers):
            raise PlanError(
                f"a batch of this task has {len(self.randomizers)} sums, got {len(counts)}."
            )
        exact = [self._total(axis, count, people) for axis, count in enumerate(counts)]
        origin = tuple(round(total) for total in exact)
        totals = np.array(
            [float(total - whole) for total, whole in zip(exact, origin, strict=True)]
        )

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            # One interval for each axis, jointly valid.
            if isinstance(self.randomizers[0], CountResponse):
                rows = (
                    self.count_intervals(tuple(counts), people, level)
                    - np.array(origin, dtype=np.float64)[:, None]
                )
                return rows[:, 0], rows[:, 1]
            halves = self.half_widths(people, level)
            return totals - halves, totals + halves

        return Estimate(
            totals, self.standard_errors(people), people, self.step, ends, origin=origin
        )

    def _total(self, axis: int, count: int, people: int) -> Fraction:
        """Unbiased estimate of the total of the steps on an axis."""
        randomizer = self.randomizers[axis]
        encoding = self.encodings[axis]
        if isinstance(encoding, Unary):
            if not 0 <= count <= people * encoding.length:
                raise PlanError(
                    f"{people:,} reports of this task make up to {encoding.length:,} ones "
                    "each; this batch does not."
                )
            return Fraction(randomizer.total_from_count(count, people))
        if not 0 <= count < encoding.modulus:
            raise PlanError(
                f"a sum of this task lies in 0..{encoding.modulus - 1:,}; this batch does not."
            )
        return Fraction(
            encoding.centred(count, 0, people * randomizer.top) * randomizer.granularity
        )

    def noise_draws(self, people: int) -> int:
        """Number of shares of noise in a total of this many reports."""
        return 1 if self.trusted == "curator" else people

    def mean_error(self, people: int, scales: Sequence[float] = (1.0, 1.0)) -> float:
        """E|error| of the total (one axis), or E of the Euclidean error (two axes), in steps.

        `scales` converts steps to units on each axis.
        """
        spreads = [
            randomizer.error_points(self.noise_draws(people), people)
            for randomizer in self.randomizers
        ]
        if len(spreads) == 1:
            values, weights = spreads[0]
            return float(np.dot(np.abs(values), weights)) * scales[0]
        (first, p), (second, q) = spreads
        return float(p @ np.hypot(first[:, None] * scales[0], second[None, :] * scales[1]) @ q)

    def expected_error(self, query: Query, people: int) -> float:
        return self.mean_error(people, _summed(query).error_scales(people, self.step))

    def standard_error(self, query: Query, people: int) -> float | None:
        return float(
            np.linalg.norm(
                self.standard_errors(people) * _summed(query).error_scales(people, self.step)
            )
        )

    def standard_errors(self, people: int) -> Floats:
        """Standard deviation of each total, in steps."""
        draws = self.noise_draws(people)
        return np.array(
            [math.sqrt(randomizer.total_variance(draws, people)) for randomizer in self.randomizers]
        )

    def half_widths(self, people: int, level: float) -> Floats:
        """Half-widths of intervals for the totals, in steps; joint probability >= level."""
        each = 1.0 - (1.0 - level) / len(self.randomizers)
        draws = self.noise_draws(people)
        return np.array(
            [randomizer.half_width(draws, each, people) for randomizer in self.randomizers]
        )

    def count_intervals(self, counts: tuple[int, ...], people: int, level: float) -> Floats:
        """Joint (low, high) of each total from the counts of ones (randomized response only)."""
        each = 1.0 - (1.0 - level) / len(self.randomizers)
        pairs = zip(self.randomizers, counts, strict=True)
        return np.array(
            [
                randomizer.interval(count, people, each)
                for randomizer, count in pairs
                if isinstance(randomizer, CountResponse)
            ]
        )

    # What a liar can do

    def damage(self, query: Query, people: int) -> Damage:
        """Return how far one participant who lies can move the answer.

        Statement: let L be the bits of unary messages, or top + 2 `reach` of visible residues. The
        total of an axis changes by at most c L, with c = the granularity, or 1/(1 - 2 flip) for
        randomized response; the answer by the norm, over the axes, of c L times its units per step.
        Two reports attain it. Residues in shares have no limit.
        Proof: a report is refused (unary) or clamped (visible) outside of L + 1 values, so it
        changes the sum by at most L. A total is c times the sum plus a function of the number of
        people; limiting sums to the window of the modulus increases no difference. Residues in
        shares add any residue, among them half of the modulus. QED Numerics: rounded up.
        """
        if self.modulus is not None and not self.visible:
            return NO_LIMIT
        scales = _summed(query).error_scales(people, self.step)
        moves = [
            self._counted_cells(randomizer) * _steps_per_cell(randomizer) * scale
            for randomizer, scale in zip(self.randomizers, scales, strict=True)
        ]
        return Damage(round_up(math.hypot(*moves), 8), certified=True)

    def lies(self, query: Query, liars: int) -> NDArray[np.generic]:
        """The largest reports; residues in shares add half of the modulus, once."""
        rows = np.zeros((liars, self.layout.numbers), dtype=self.layout.type)
        width = self.layout.numbers // len(self.randomizers)
        for axis, randomizer in enumerate(self.randomizers):
            if self.modulus is None:
                rows[:, axis] = randomizer.length
            elif self.visible:
                rows[:, axis] = min(randomizer.top + self.reach(randomizer), self.modulus // 2)
            else:
                rows[:1, axis * width] = self.modulus // 2
        return rows

    def _counted_cells(self, randomizer: Randomizer) -> int:
        """Largest change of the sum of an axis by one report."""
        if self.modulus is None:
            return randomizer.length
        return min(randomizer.top + 2 * self.reach(randomizer), self.modulus - 1)

    # What it hides

    def check(self, query: Query) -> None:
        summed = _summed(query)
        summed.check_step(self.step)
        self._check_randomizers(summed)
        if self.rounding is not None:
            self._check_units(summed)
        if not self._has_account or (self.encoding == "unary" and self.shares != 1):
            raise PlanError(
                f"no account covers this noise in {self.encoding} messages to "
                f"{self.trusted}; the protocol is damaged."
            )
        _ = self.encodings  # raises for an impossible modulus or number of shares

    def _check_randomizers(self, query: SummedQuery) -> None:
        """Raise unless the noise is known, equal on all axes, and made for values of the query."""
        spans = query.spans(self.step)
        if any(
            type(randomizer) not in (AdditiveRandomizer, CountResponse)
            for randomizer in self.randomizers
        ):
            raise PlanError(
                "no account covers subclasses of the noise of a sum, which may send anything; "
                "use the noise itself."
            )
        if tuple(randomizer.span for randomizer in self.randomizers) != spans:
            raise PlanError(
                f"values of this query take {' and '.join(map(str, spans))} steps, but its "
                "randomizers are made for other numbers of steps."
            )
        if self.rounding != query.rounding:
            raise PlanError(
                "the query and its protocol disagree on whether values are rounded at random "
                "to units."
            )
        own = {"span", "table_digest"} if self.rounding is None else {"span", "granularity"}
        noises = [randomizer.model_dump(exclude=own) for randomizer in self.randomizers]
        if any(noise != noises[0] for noise in noises):
            raise PlanError("the noise differs between the axes, which no account covers.")

    def _check_units(self, query: SummedQuery) -> None:
        """Raise unless units of random rounding have the length for which noise is accounted."""
        # Metres per degree are rounded down by 1e-9 (see `places`), because sines differ slightly
        # between machines; a tenth of that is allowed here.
        pairs = zip(self.randomizers, query.grains(1.0, self.step), strict=True)
        if not all(fewest * (1.0 - 1e-10) <= part.granularity <= 2**62 for part, fewest in pairs):
            raise PlanError(
                f"its units are shorter than {self.step:g} {query.unit}, for which its noise "
                "is accounted, or too long."
            )

    @property
    def _has_account(self) -> bool:
        """Whether there is an account of this noise in these messages to the trusted party."""
        randomizer = self.randomizers[0]
        if isinstance(randomizer, CountResponse):
            return (
                self.rounding is None
                and self.encoding == "unary"
                and self.trusted in ("shuffler", "aggregator")
            )
        if self.rounding is not None and randomizer.padding == "bounded":
            return False
        if self.encoding == "unary":
            return randomizer.padding in ("clamp", "bounded") and self.trusted == "shuffler"
        return randomizer.padding == "none"

    def check_size(self, honest: int) -> None:
        if isinstance(self.shorter, CountResponse):
            low, high = bit_count_range(0, honest * self.shorter.span, self.shorter.flip)
            if high - low > MAX_COUNTED:
                raise ConditionError(
                    "RR-Shuffle",
                    f"a count of ones that takes at most {MAX_COUNTED:,} values",
                    f"{high - low:,}",
                )

    def accounts(self, target: Target, rounds: int) -> Accounts:
        if self.rounding is not None:
            tops = [part.top for part in self.randomizers if isinstance(part, AdditiveRandomizer)]
            return PlaceAccounts(target.in_steps(self.step), sum(tops), rounds)
        return SumAccounts(target.in_steps(self.step), len(self.randomizers), self.grain, rounds)

    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        accounts = self.accounts(target, rounds)
        if self.rounding is None and accounts.target.distance < 1.0 - 1e-12:
            raise ConditionError(
                "Sums", "a distance of at least one step", f"{accounts.target.distance:g} steps"
            )
        profile, pure = self._profile(accounts, honest)
        together = accounts.together if isinstance(accounts, PlaceAccounts) else self.grain == 1
        if self.trusted == "nobody":
            # Pure reports: epsilons of several people add up, so a linear guarantee covers a total
            # distance, too.
            together = pure and target.shape == "linear"
        protects: Protects = "people together" if together else "one person"
        return Account(
            profile,
            accounts.target,
            protects,
            0.0 if pure else target.delta,
            profile.bound,
            target.shape,
        )

    def _profile(self, accounts: Accounts, honest: int) -> tuple[PrivacyProfile, bool]:
        """Profile of the honest people's total, and whether it needs no delta."""
        randomizer = self.randomizers[0]
        if isinstance(randomizer, CountResponse):
            return self._response_profile(accounts, honest), False
        noise = Polya(randomizer.shape, randomizer.rate)
        if self.trusted in ("nobody", "curator"):
            return self._ideal(accounts, noise)
        total = noise.summed(honest)
        if self.modulus is None:
            return self._padded_profile(accounts, randomizer, total, honest), False
        ideal, pure = self._ideal(accounts, total)
        if self.trusted == "aggregator":
            return ideal, pure
        sharings = accounts.axes * accounts.rounds
        return SplitAndMix(ideal, security_bits(honest, self.shares, self.modulus), sharings), False

    def _ideal(self, accounts: Accounts, total: Polya) -> tuple[PrivacyProfile, bool]:
        """Profile of exact noise, and whether it is pure.

        It is pure if the shape is at least 1 and the rate small enough; otherwise it follows from
        the law.
        """
        if total.shape >= 1 and total.rate <= accounts.pure_rate():
            return accounts.pure_profile(total.rate), True
        return accounts.noise_profile(total), False

    def _padded_profile(
        self, accounts: Accounts, randomizer: AdditiveRandomizer, total: Polya, honest: int
    ) -> PrivacyProfile:
        """Profile of padded noise, by its exact law if that is narrow.

        Otherwise by the probability that the padding ever has an effect.
        """
        bounded = randomizer.padding == "bounded"
        plain = accounts.axes == accounts.rounds == accounts.grain == 1
        if bounded or (plain and narrow(total, accounts.target, accounts.grain)):
            exact = accounts.total_profile(randomizer.summed_profile(honest))
            if bounded or accounts.target.kept_by(exact):
                return exact
        certain = total.shape == 1 and accounts.rounds == 1
        ideal = accounts.pure_profile(total.rate) if certain else accounts.noise_profile(total)
        return rare_clamping_profile(ideal, randomizer, honest * accounts.axes * accounts.rounds)

    def _response_profile(self, accounts: Accounts, honest: int) -> PrivacyProfile:
        self.check_bits(honest, accounts.target.distance)
        return accounts.total_profile(self.shorter.summed_profile(honest))

    @property
    def shorter(self) -> Randomizer:
        """The randomizer of the shorter axis: fewer bits hide less, so it represents both axes."""
        return min(self.randomizers, key=lambda randomizer: randomizer.span)

    def check_bits(self, honest: int, steps: float) -> None:
        """Raise unless the shorter axis, which represents both, can move by this many steps.

        Otherwise the account would count moves that the shorter axis cannot make as hidden.
        """
        bits = honest * self.shorter.span
        if isinstance(self.shorter, CountResponse) and len(self.randomizers) == 2 and bits < steps:
            raise ConditionError(
                "RR-Shuffle on two axes",
                "at least as many honest bits on the shorter axis as the distance has cells",
                f"{bits:,}",
            )

    def remarks(self, query: Query, target: Target, honest: int, rounds: int) -> list[str]:
        if self.rounding is None:
            return []
        unit = f"{self.step:g} {query.unit}"
        return [
            f"Places are rounded at random to units of {unit}, so that they are right on "
            "average; errors and promises count that in."
        ]

    def report_profile(self, target: Target, rounds: int) -> PrivacyProfile:
        """Profile of one person's report, in steps."""
        widest = max(self.randomizers, key=lambda randomizer: randomizer.span)
        return self.accounts(target, rounds).report_profile(widest.local_profile())

    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        if self.trusted == "curator":
            return single_person_guarantee(
                query, target, rounds, math.inf, "raw values seen", delta=0.0, step=self.step
            )
        profile = self.report_profile(target, rounds)
        steps = target.in_steps(self.step).distance
        delta = 0.0 if math.isfinite(profile.pure(steps)) else target.delta
        epsilon = profile.epsilon(delta, steps)
        noise = getattr(profile, "noise", None)
        is_exact = not isinstance(noise, Polya) or noise.log_concave or noise.tabulated
        bound = profile.bound if is_exact else "pure"
        return single_person_guarantee(
            query, target, rounds, epsilon, bound, delta=delta, step=self.step
        )


def narrow(total: Polya, target: Target, grain: int) -> bool:
    """Whether the law of a padded sum is narrow enough to be accounted exactly."""
    if target.delta == 0.0:  # a received task may say so, but padding needs a delta
        return False
    return bool(
        total.tail_radius(math.log(target.delta) - TAIL_MARGIN) + target.distance / grain
        <= EXACT_CELLS
    )


def rare_clamping_profile(
    ideal: PrivacyProfile, randomizer: AdditiveRandomizer, reports: int
) -> RarelyClampedProfile:
    """Profile of unpadded noise plus the probability that any of `reports` reports is clamped."""
    beyond = (
        Polya(Fraction(randomizer.shape), randomizer.rate)
        .law(UTILITY_LOG_TAIL, randomizer.radius)
        .beyond(randomizer.radius)
    )
    return RarelyClampedProfile(ideal, min(1.0, reports * beyond))


def _steps_per_cell(randomizer: Randomizer) -> float:
    """Change of an estimated total, in steps, if the sum increases by one."""
    if isinstance(randomizer, CountResponse):
        return 1.0 / (1.0 - 2.0 * randomizer.flip)
    return float(randomizer.granularity)


def _smallest_word(largest: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Smallest unsigned type of two or more bytes for whole numbers up to `largest`."""
    if largest < 2**16:
        return np.dtype("<u2")
    return np.dtype("<u4") if largest < 2**32 else np.dtype("<u8")


def _summed(query: Query) -> SummedQuery:
    if not isinstance(query, SummedQuery):
        raise PlanError(
            f"sums answer a sum, a mean or a centroid, and not a {query.kind}; the task is damaged."
        )
    return query

"""Sums: everybody randomizes each axis, sends it in messages of equal length, and the totals are estimated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, SerializerFunctionWrapHandler, model_serializer

from metricshuffle.accounting.sums.additive_noise import TAIL_MARGIN
from metricshuffle.accounting.sums.rare_clamping import RarelyClampedProfile
from metricshuffle.accounting.sums.split_and_mix import SplitAndMix, security_bits
from metricshuffle.encodings import Modular, Unary
from metricshuffle.errors import ConditionError, PlanError
from metricshuffle.estimation.inversion import IntervalMethod
from metricshuffle.noise.binomial_sum import bit_count_range
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import sample_polya
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.guarantee import Guarantee, Protects
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.place_accounts import PlaceAccounts
from metricshuffle.protocols.protocol import Account, Layout, Protocol, single_person_guarantee
from metricshuffle.protocols.sum_accounts import SumAccounts
from metricshuffle.protocols.tally import Shuffled, Tally
from metricshuffle.queries.query import Estimate, Inputs, Query
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.randomizers.additive_randomizer import UTILITY_LOG_TAIL, AdditiveRandomizer, round_randomly
from metricshuffle.randomizers.count_response import CountResponse
from metricshuffle.randomness import Randomness

Randomizer = Annotated[AdditiveRandomizer | CountResponse, Discriminator("kind")]
Accounts = SumAccounts | PlaceAccounts
# Sums of padded noise over up to this many cells are accounted exactly, wider ones by the chance of clamping.
EXACT_CELLS = 10_000
# Counts of flipped bits with more values than this (twice what is ever planned) would take minutes, and are refused.
MAX_COUNTED = 1_000_000


class Sums(Protocol):
    """A randomizer and an encoding on each axis: unary counts, or residues in shares."""

    kind: Literal["sums"] = "sums"
    randomizers: tuple[Randomizer, ...]
    shares: int = 1
    """Into how many residues of `modulus` a number is split; without a modulus, messages are unary."""
    rounding: Literal["random"] | None = None
    """"random": real values are rounded at random to units of `step`, which are `granularity` points of the query along each axis."""

    @model_serializer(mode="wrap")
    def _only_what_is_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Tasks written before there was a rounding carry a digest of this dictionary.
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
        """How many steps are rounded to one cell of the noise."""
        return 1 if self.rounding is not None else self.randomizers[0].granularity

    @property
    def grains(self) -> tuple[int, ...]:
        """How many whole numbers of the query are rounded to one cell of the noise, along each axis."""
        return tuple(randomizer.granularity for randomizer in self.randomizers)

    @property
    def layout(self) -> Layout:
        if self.modulus is not None:
            return Layout(np.dtype("<u8"), self.shares * len(self.randomizers), len(self.randomizers))
        longest = max(randomizer.length for randomizer in self.randomizers)
        return Layout(np.dtype("<u2" if longest < 2**16 else "<u4" if longest < 2**32 else "<u8"), len(self.randomizers), apart=False)

    @property
    def row(self) -> int:
        return len(self.randomizers)

    def check_people(self, query: Query, people: int, users: int) -> None:
        if self.modulus is None:
            return
        top = max(randomizer.top for randomizer in self.randomizers)
        if people > users or people * top >= self.modulus:
            room = min(users, (self.modulus - 1) // top)
            raise PlanError(
                f"{people:,} reports are more than this plan's modulus has room for, {room:,}; plan again for more people, or "
                "say whose rows they are if a person has several (`user_column`)."
            )

    # Clients

    def messages(self, inputs: Inputs, randomness: Randomness) -> NDArray[Any]:
        """One row a person: counts for unary, residues for modular. What reaches a curator is the value itself, in cells of the noise."""
        columns: list[NDArray[Any]] = []
        for axis, (randomizer, encoding) in enumerate(zip(self.randomizers, self.encodings, strict=True)):
            values = np.ascontiguousarray(inputs.numbers[:, axis])
            if self.trusted == "curator":
                reports = round_randomly(values, randomizer.granularity, randomness)
            else:
                reports = randomizer.reports(values, randomness)
            columns.append(reports.reshape(-1, 1) if isinstance(encoding, Unary) else encoding.shares(reports, randomness))
        return np.concatenate(columns, axis=1).astype(self.layout.type, copy=False)

    # Shuffler

    def counted(self, messages: NDArray[Any]) -> dict[int, list[int]]:
        self.check_width(messages)
        width, sums = self.layout.numbers // len(self.randomizers), []
        for axis, encoding in enumerate(self.encodings):
            mine = messages[:, axis * width : (axis + 1) * width]
            if isinstance(encoding, Unary):
                sums.append(encoding.shuffled_counts(mine[:, 0]).ones)
            else:
                sums.append(encoding.total(mine.astype(np.uint64, copy=False)))
        return {0: sums}

    def published(self, query: Query, tally: Tally, randomness: Randomness) -> dict[int, list[int]]:
        totals = list(tally.numbers)
        if self.trusted == "curator":
            for axis, randomizer in enumerate(self.randomizers):
                if isinstance(randomizer, AdditiveRandomizer):
                    totals[axis] += int(sample_polya(randomizer.shape, randomizer.exact_rate, 1, randomness)[0])
        return {0: totals if self.modulus is None else [total % self.modulus for total in totals]}

    # Analyst

    def estimate(self, query: Query, shuffled: Shuffled) -> Estimate:
        people, counts = shuffled.people, shuffled.numbers
        if len(counts) != len(self.randomizers):
            raise PlanError(f"a batch of this task has {len(self.randomizers)} sums, got {len(counts)}.")
        exact = [self._total(axis, count, people) for axis, count in enumerate(counts)]
        origin = tuple(round(total) for total in exact)
        totals = np.array([float(total - whole) for total, whole in zip(exact, origin, strict=True)])

        def ends(level: float, simultaneous: bool, method: IntervalMethod) -> tuple[Floats, Floats]:
            # one for each axis, jointly
            if isinstance(self.randomizers[0], CountResponse):
                rows = self.count_intervals(tuple(counts), people, level) - np.array(origin, dtype=np.float64)[:, None]
                return rows[:, 0], rows[:, 1]
            halves = self.half_widths(people, level)
            return totals - halves, totals + halves

        return Estimate(totals, self.standard_errors(people), people, self.step, ends, origin=origin)

    def _total(self, axis: int, count: int, people: int) -> Fraction:
        """An unbiased estimate of the total of the steps on an axis."""
        randomizer, encoding = self.randomizers[axis], self.encodings[axis]
        if isinstance(encoding, Unary):
            if not 0 <= count <= people * encoding.length:
                raise PlanError(f"{people:,} reports of this task make up to {encoding.length:,} ones each; this batch does not.")
            return Fraction(randomizer.total_from_count(count, people))
        if not 0 <= count < encoding.modulus:
            raise PlanError(f"a sum of this task lies in 0..{encoding.modulus - 1:,}; this batch does not.")
        return Fraction(encoding.centred(count, 0, people * randomizer.top) * randomizer.granularity)

    def noise_draws(self, people: int) -> int:
        """How many shares of noise are in a total of that many reports."""
        return 1 if self.trusted == "curator" else people

    def mean_error(self, people: int, scales: Sequence[float] = (1.0, 1.0)) -> float:
        """E|error| of the total in steps (one axis), or E of the Euclidean error (two axes); `scales`: of so many units a step."""
        spreads = [randomizer.error_points(self.noise_draws(people), people) for randomizer in self.randomizers]
        if len(spreads) == 1:
            values, weights = spreads[0]
            return float(np.dot(np.abs(values), weights)) * scales[0]
        (first, p), (second, q) = spreads
        return float(p @ np.hypot(first[:, None] * scales[0], second[None, :] * scales[1]) @ q)

    def expected_error(self, query: Query, people: int) -> float:
        return self.mean_error(people, _summed(query).error_scales(people, self.step))

    def standard_error(self, query: Query, people: int) -> float | None:
        return float(np.linalg.norm(self.standard_errors(people) * _summed(query).error_scales(people, self.step)))

    def standard_errors(self, people: int) -> Floats:
        """Standard deviation of each total, in steps."""
        draws = self.noise_draws(people)
        return np.array([math.sqrt(randomizer.total_variance(draws, people)) for randomizer in self.randomizers])

    def half_widths(self, people: int, level: float) -> Floats:
        """Half the width of an interval for each total, in steps; together they hold with probability >= level."""
        each = 1.0 - (1.0 - level) / len(self.randomizers)
        draws = self.noise_draws(people)
        return np.array([randomizer.half_width(draws, each, people) for randomizer in self.randomizers])

    def count_intervals(self, counts: tuple[int, ...], people: int, level: float) -> Floats:
        """(low, high) of each total from the observed counts of ones (randomized response only), jointly."""
        each = 1.0 - (1.0 - level) / len(self.randomizers)
        pairs = zip(self.randomizers, counts, strict=True)
        return np.array([randomizer.interval(count, people, each) for randomizer, count in pairs if isinstance(randomizer, CountResponse)])

    # What it hides

    def check(self, query: Query) -> None:
        summed = _summed(query)
        summed.check_step(self.step)
        spans = summed.spans(self.step)
        if any(type(randomizer) not in (AdditiveRandomizer, CountResponse) for randomizer in self.randomizers):
            raise PlanError("a class that extends the noise of a sum may send anything, and no account covers it; use the noise as it is.")
        if tuple(randomizer.span for randomizer in self.randomizers) != spans:
            raise PlanError(f"values of this query take {' and '.join(map(str, spans))} steps, and its randomizers are made for others.")
        if self.rounding != summed.rounding:
            raise PlanError("values of this query are rounded at random to units, or are not, and its protocol says otherwise.")
        own = {"span", "table_digest"} if self.rounding is None else {"span", "granularity"}
        noises = [randomizer.model_dump(exclude=own) for randomizer in self.randomizers]
        if any(noise != noises[0] for noise in noises):
            raise PlanError("the noise differs between the axes, which no account covers.")
        randomizer, encoded = self.randomizers[0], self.encoding
        if isinstance(randomizer, CountResponse):
            known = encoded == "unary" and self.trusted in ("shuffler", "aggregator")
        elif encoded == "unary":
            known = randomizer.padding in ("clamp", "bounded") and self.trusted == "shuffler"
        else:
            known = randomizer.padding == "none"
        if self.rounding is not None:
            known = known and isinstance(randomizer, AdditiveRandomizer) and randomizer.padding != "bounded"
            # (another machine's sines may be off by a little, and the plane is rounded down by ten times as much)
            pairs = zip(self.randomizers, summed.grains(1.0, self.step), strict=True)
            if not all(fewest * (1.0 - 1e-10) <= part.granularity <= 2**62 for part, fewest in pairs):
                raise PlanError(f"its units are shorter than {self.step:g} {query.unit}, which its noise is accounted for, or cannot be.")
        if not known or (encoded == "unary" and self.shares != 1):
            raise PlanError(f"no account covers this noise in {encoded} messages to {self.trusted}; the protocol is damaged.")
        _ = self.encodings  # refuses a modulus or a number of shares that cannot be

    def check_size(self, honest: int) -> None:
        if isinstance(self.shorter, CountResponse):
            low, high = bit_count_range(0, honest * self.shorter.span, self.shorter.flip)
            if high - low > MAX_COUNTED:
                raise ConditionError("RR-Shuffle", f"a count of ones that takes at most {MAX_COUNTED:,} values", f"{high - low:,}")

    def accounts(self, target: Target, rounds: int) -> Accounts:
        if self.rounding is not None:
            tops = [part.top for part in self.randomizers if isinstance(part, AdditiveRandomizer)]
            return PlaceAccounts(target.in_steps(self.step), sum(tops), rounds)
        return SumAccounts(target.in_steps(self.step), len(self.randomizers), self.grain, rounds)

    def account(self, query: Query, target: Target, honest: int, rounds: int) -> Account:
        accounts = self.accounts(target, rounds)
        if self.rounding is None and accounts.target.distance < 1.0 - 1e-12:
            raise ConditionError("Sums", "a distance of at least one step", f"{accounts.target.distance:g} steps")
        profile, pure = self._profile(accounts, honest)
        together = accounts.together if isinstance(accounts, PlaceAccounts) else self.grain == 1
        if self.trusted == "nobody":
            # Pure reports: epsilons of several people add, so a linear promise holds for a total distance too.
            together = pure and target.shape == "linear"
        protects: Protects = "people together" if together else "one person"
        return Account(profile, accounts.target, protects, 0.0 if pure else target.delta, profile.bound, target.shape)

    def _profile(self, accounts: Accounts, honest: int) -> tuple[PrivacyProfile, bool]:
        """The profile of the honest people's total, and whether it needs no delta."""
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
        """Exact noise: pure where its shape is at least 1 and its rate small enough, else by its law."""
        if total.shape >= 1 and total.rate <= accounts.pure_rate():
            return accounts.pure_profile(total.rate), True
        return accounts.noise_profile(total), False

    def _padded_profile(self, accounts: Accounts, randomizer: AdditiveRandomizer, total: Polya, honest: int) -> PrivacyProfile:
        """Padded noise: by its exact law where that is narrow, else by the chance that the padding ever shows."""
        target = accounts.target
        bounded, plain = randomizer.padding == "bounded", accounts.axes == accounts.rounds == accounts.grain == 1
        if bounded or (plain and self._narrow(accounts, total)):
            exact = accounts.total_profile(randomizer.summed_profile(honest))
            if bounded or target.kept_by(exact):
                return exact
        certain = total.shape == 1 and accounts.rounds == 1
        ideal = accounts.pure_profile(total.rate) if certain else accounts.noise_profile(total)
        return rare_clamping_profile(ideal, randomizer, honest * accounts.axes * accounts.rounds)

    def _narrow(self, accounts: Accounts, total: Polya) -> bool:
        return narrow(total, accounts.target, accounts.grain)

    def _response_profile(self, accounts: Accounts, honest: int) -> PrivacyProfile:
        self.check_bits(honest, accounts.target.distance)
        return accounts.total_profile(self.shorter.summed_profile(honest))

    @property
    def shorter(self) -> Randomizer:
        """Of the axes: fewer bits hide less, so it stands for both."""
        return min(self.randomizers, key=lambda randomizer: randomizer.span)

    def check_bits(self, honest: int, steps: float) -> None:
        """Raise unless the shorter axis, which stands for both, can move as far as that: what it cannot do it would seem to hide."""
        bits = honest * self.shorter.span
        if isinstance(self.shorter, CountResponse) and len(self.randomizers) == 2 and bits < steps:
            raise ConditionError(
                "RR-Shuffle on two axes", "at least as many honest bits on the shorter axis as the distance has cells", f"{bits:,}"
            )

    def remarks(self, query: Query, target: Target, honest: int, rounds: int) -> list[str]:
        if self.rounding is None:
            return []
        unit = f"{self.step:g} {query.unit}"
        return [f"Places are rounded at random to units of {unit}, so that they are right on average; errors and promises count that in."]

    def report_profile(self, target: Target, rounds: int) -> PrivacyProfile:
        """What one person's report hides, in steps."""
        widest = max(self.randomizers, key=lambda randomizer: randomizer.span)
        return self.accounts(target, rounds).report_profile(widest.local_profile())

    def alone(self, query: Query, target: Target, rounds: int) -> Guarantee:
        epsilon, delta, bound = math.inf, 0.0, "raw values seen"
        if self.trusted != "curator":
            profile, steps = self.report_profile(target, rounds), target.in_steps(self.step).distance
            delta = 0.0 if math.isfinite(profile.pure(steps)) else target.delta
            epsilon, bound = profile.epsilon(delta, steps), profile.bound
        return single_person_guarantee(query, target, rounds, epsilon, bound, delta=delta, step=self.step)


def narrow(total: Polya, target: Target, grain: int) -> bool:
    """Whether the law of a padded sum is narrow enough to be accounted exactly."""
    if target.delta == 0.0:  # nothing padded is certain; what a received task says
        return False
    return bool(total.tail_radius(math.log(target.delta) - TAIL_MARGIN) + target.distance / grain <= EXACT_CELLS)


def rare_clamping_profile(ideal: PrivacyProfile, randomizer: AdditiveRandomizer, reports: int) -> RarelyClampedProfile:
    """As if nothing were padded, and the chance that any of so many reports is clamped on top."""
    beyond = Polya(Fraction(randomizer.shape), randomizer.rate).law(UTILITY_LOG_TAIL, randomizer.radius).beyond(randomizer.radius)
    return RarelyClampedProfile(ideal, min(1.0, reports * beyond))


def _summed(query: Query) -> SummedQuery:
    if not isinstance(query, SummedQuery):
        raise PlanError(f"sums answer a sum, a mean or a centroid, and not a {query.kind}; the task is damaged.")
    return query

"""Sums, means and centroids: every protocol calibrated to the least noise that certainly keeps the target."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property, partial
from typing import Any

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.rare_clamping import RarelyClampedProfile, clamping_penalty
from metricshuffle.accounting.sums.split_and_mix import MIN_MESSAGES, MIN_USERS, messages_needed
from metricshuffle.encodings import modulus_for
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.noise.dyadic_table import LARGEST_RADIUS
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import LARGEST_RATE, rational_rate
from metricshuffle.numerics.certified_search import MemoizedCheck, last_certified_integer
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.setting import Setting, step_sentence
from metricshuffle.privacy.calibration import largest_rate
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.place_accounts import PlaceAccounts
from metricshuffle.protocols.protocol import Account
from metricshuffle.protocols.sum_accounts import SumAccounts
from metricshuffle.protocols.sums import EXACT_CELLS, Accounts, Randomizer, Sums, narrow
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.randomizers.additive_randomizer import UTILITY_LOG_TAIL, AdditiveRandomizer, Padding

# Of delta: to the statistical term of shares through a shuffler, and kept free for padding when noise is calibrated.
SHARING_DELTA_SHARE, PADDING_DELTA_SHARE = 1e-3, 0.1
# A modular sum wraps around with at most this probability (e^-46 = 1e-20): an error of the estimate, never of privacy.
WRAP_LOG_PROBABILITY = -46.0
# Rates are found to this much (relative): so much more noise than needed nobody notices.
RATE_TOLERANCE = 1e-7
# Noise with many more cells to a deviation is calibrated with about so many of them first; and no noise has a larger rate.
FEWER_CELLS, MAX_RATE = (128.0, 2048.0, 32768.0), 32.0
# Anybody's report is clamped with at most this chance: well below what a 95 % interval may miss.
MAX_CLAMP_PROBABILITY = 0.005
NAMES = {"geometric-local", "geometric-central", "geometric-shuffle", "polya-shuffle", "randomized-response-shuffle"}


@dataclass(frozen=True)
class SumSetting:
    """A setting whose query is summed up, with the steps that its values are counted in."""

    setting: Setting
    query: SummedQuery
    rates: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By total shape, what was last calibrated: where the next calibration, with nearly the same delta, may start."""

    @cached_property
    def grain(self) -> int:
        return self.query.grain(self.setting.granularity)

    @cached_property
    def grains(self) -> tuple[int, ...]:
        """How many steps (or, of places, points) along each axis are rounded to one cell of the noise."""
        return self.query.grains(self.setting.granularity, self.step)

    @cached_property
    def step(self) -> float:
        setting = self.setting
        return self.query.planned_step(setting.target, setting.users, setting.rounds, setting.granularity)

    @property
    def honest(self) -> int:
        return self.setting.honest

    @property
    def axes(self) -> int:
        return self.query.axes

    @property
    def rounds(self) -> int:
        return self.setting.rounds

    @cached_property
    def target(self) -> Target:
        """The target in steps."""
        return self.setting.target.in_steps(self.step)

    @cached_property
    def accounts(self) -> Accounts:
        if self.query.rounding is not None:
            whole = sum(-(-span // grain) for span, grain in zip(self.spans, self.grains, strict=True))
            return PlaceAccounts(self.target, whole, self.rounds)
        return SumAccounts(self.target, self.axes, self.grain, self.rounds)

    @cached_property
    def spans(self) -> tuple[int, ...]:
        return self.query.spans(self.step)

    def check(self) -> None:
        """Raise unless there are steps, and the distance has at least one."""
        self.query.check_new()
        if self.grain and self.query.rounding is None and self.target.distance < 1.0:
            raise InputError(step_sentence(self.query, self.setting.target.distance, self.step))

    @cached_property
    def normal_deviation(self) -> float:
        """About the standard deviation, in cells, of normal noise that keeps the target: where a search may start (delta > 0)."""
        depth = math.sqrt(-2.0 * math.log(self.target.delta))
        shift = math.sqrt(depth * depth + 2.0 * self.target.epsilon) - depth
        # A generous delta covers a move by itself: normal laws s deviations apart differ by s/sqrt(2 pi) in total variation.
        shift = max(shift, math.sqrt(2.0 * math.pi) * self.target.delta)
        return self.target.distance / self.grain * math.sqrt(self.rounds) / shift

    def normal_rate(self, total_shape: int) -> float:
        """The rate of noise of that shape whose variance is that of the normal one."""
        return 2.0 * math.asinh(math.sqrt(0.5 * total_shape) / self.normal_deviation)

    def randomizers(self, shape: object, rate: float, padding: Padding, radius: int = 0) -> tuple[AdditiveRandomizer, ...]:
        """The same noise on every axis."""
        return tuple(
            AdditiveRandomizer(span=span, shape=shape, rate=rate, padding=padding, radius=radius, granularity=grain)
            for span, grain in zip(self.spans, self.grains, strict=True)
        )

    def modular(self, name: str, noise: Polya, draws: int, trusted: Who, shares: int = 1) -> Sums:
        """Exact noise in residues of a modulus that the total hardly ever leaves."""
        randomizers = self.randomizers(noise.shape, noise.rate, "none")
        radius = math.ceil(noise.summed(draws).tail_radius(WRAP_LOG_PROBABILITY - math.log(self.axes)))
        modulus = modulus_for(self.setting.users, max(randomizer.top for randomizer in randomizers), radius)
        return self.sums(name, trusted, randomizers, modulus=modulus, shares=shares)

    def sums(self, name: str, trusted: Who, randomizers: Sequence[Randomizer], **encoded: Any) -> Sums:
        """The protocol of these randomizers."""
        return Sums(name=name, trusted=trusted, step=self.step, randomizers=tuple(randomizers), rounding=self.query.rounding, **encoded)

    def offered(self, protocol: Sums, account: Account, **details: Any) -> Candidate:
        """The candidate, if its account holds at every distance."""
        if not account.kept:
            raise NotCertified("the calibrated noise did not pass the final verification; please report this as a bug.")
        return self.described(protocol, account, **details)

    def described(self, protocol: Sums, account: Account, **details: Any) -> Candidate:
        made = candidate(self.setting, protocol, account, **details)
        if protocol.trusted == "curator":
            return made
        # One unit may be less than a step, and is then a step at most; like the distance it may be off by a rounding.
        profile = protocol.report_profile(self.setting.target, self.rounds)
        shortest = 1.0 if self.query.rounding is None else 0.0
        per_unit = profile.epsilon(made.fallback.delta, max(1.0 / self.step * (1.0 + 1e-12), shortest))
        return made.model_copy(update={"local_epsilon_per_unit": per_unit})


@family
def sums(setting: Setting) -> Iterator[Offer]:
    """Local and central noise, and shuffled noise of several shapes in both encodings."""
    if not isinstance(setting.query, SummedQuery):
        return
    at = SumSetting(setting, setting.query)
    if setting.protocols is None or set(setting.protocols) & NAMES:
        at.check()
    wanted = ("unary", "modular") if setting.encoding == "auto" else (setting.encoding,)
    yield Offer("geometric-local", "modular", partial(local, at))
    yield Offer("geometric-central", "modular", partial(central, at))
    builders = {"unary": shuffled_unary, "modular": shuffled_modular}
    for shape in shapes(at):
        for encoding in wanted:
            yield Offer(share_of(at, shape)[0], encoding, partial(builders[encoding], at, shape))


def local(at: SumSetting) -> Candidate:
    """geometric-local: everybody's own noise is enough; nobody is trusted."""
    rate = samplable_rate(at.accounts.pure_rate())
    protocol = at.modular("geometric-local", Polya(Fraction(1), rate), at.setting.users, "nobody")
    return at.described(protocol, account_of(at, protocol), rate=rate)


def central(at: SumSetting) -> Candidate:
    """geometric-central: a curator sees the raw values and adds noise once."""
    rate = samplable_rate(at.accounts.pure_rate())
    protocol = at.modular("geometric-central", Polya(Fraction(1), rate), 1, "curator")
    return at.described(protocol, account_of(at, protocol), rate=rate)


def account_of(at: SumSetting, protocol: Sums) -> Account:
    return protocol.account(at.query, at.setting.target, at.honest, at.rounds)


def shuffled_modular(at: SumSetting, total_shape: int) -> Candidate:
    """Exact noise, sent in additive shares modulo a number (or to an aggregator that only sums)."""
    name, share = share_of(at, total_shape)
    target, mixed = at.target, at.setting.transport == "shuffler"
    if mixed and target.delta == 0.0:
        raise ConditionError("Sharing through a shuffler", "delta > 0 (mixing is statistical)", "delta = 0 (use transport='aggregator')")
    if mixed and at.honest < MIN_USERS:
        raise ConditionError("Sharing through a shuffler", f"at least {MIN_USERS} honest users", f"{at.honest}")
    budget = target.delta * (1.0 - SHARING_DELTA_SHARE) if mixed else target.delta
    rate = _noise_rate(at, total_shape, budget)
    noise = Polya(share, rate)
    protocol = at.modular(name, noise, at.setting.users, at.setting.transport, MIN_MESSAGES if mixed else 1)
    if mixed:
        sharings = at.axes * at.rounds
        bits = math.log2(sharings / (SHARING_DELTA_SHARE * target.delta)) + math.log2(math.e) * max(target.epsilon, 0.0) + 1.0
        if protocol.modulus is None:
            raise NotCertified("shares need a modulus; please report this as a bug.")
        protocol = protocol.model_copy(update={"shares": messages_needed(at.honest, protocol.modulus, bits)})
    return at.offered(protocol, account_of(at, protocol), rate=rate, shape=total_shape)


def shuffled_unary(at: SumSetting, total_shape: int) -> Candidate:
    """Padded noise in one-bit messages, with the smallest padding found that keeps the target at every distance."""
    name, share = share_of(at, total_shape)
    target, padding = at.target, at.setting.padding
    if target.delta == 0.0:
        raise ConditionError("Unary messages", "delta > 0 (bounded noise always leaks at the edge)", "delta = 0")
    if padding == "bounded" and at.query.rounding is not None:
        raise ConditionError("Random rounding", "noise that is exact until it is clamped", "padding 'bounded' (use 'clamp')")
    bounded, certain = padding == "bounded", total_shape == 1 and at.rounds == 1
    budget = target.delta if certain else target.delta * (1.0 - PADDING_DELTA_SHARE)
    # Some honest report is clamped with at most this chance at padding c: reports * law.beyond(c).
    reports = at.honest * at.axes * at.rounds
    room = target.delta if certain else target.delta * PADDING_DELTA_SHARE

    def enough_at(rate: float) -> int:
        enough = math.ceil(Polya(share, rate).tail_radius(math.log(room / reports) - target.epsilon - 1.0))
        if enough > LARGEST_RADIUS:
            raise NotCertified(f"unary messages would need a padding of {enough:,}, that is more than {2 * enough:,} messages a person.")
        return enough

    # Even with much less noise than normal noise would need the messages may be too many; that is seen before it is calibrated.
    enough_at(min(max(2.0 * at.normal_rate(total_shape), at.accounts.pure_rate()), MAX_RATE))
    rate = _noise_rate(at, total_shape, budget)
    noise, total = Polya(share, rate), Polya(Fraction(total_shape), rate)
    enough, seen = enough_at(rate), _interval_padding(at, noise)
    law = noise.law(UTILITY_LOG_TAIL, max(enough, seen))
    is_narrow = narrow(total, target, at.grain)
    if bounded and not is_narrow:
        raise ConditionError("Bounded padding", f"a sum of at most {EXACT_CELLS:,} cells", "more (use padding='clamp' or a granularity)")

    def exactly(radius: int) -> PrivacyProfile:
        return at.accounts.total_profile(at.randomizers(share, rate, padding, radius)[0].summed_profile(at.honest))

    radius = last_certified_integer(
        lambda c: clamping_penalty(target.epsilon, min(1.0, reports * law.beyond(c))) <= 0.99 * room, -1, enough
    )
    # (the padding at which a 95 % interval can be given, whoever reports; bounded noise needs none)
    visible = (
        0 if bounded else last_certified_integer(lambda c: at.setting.users * at.axes * law.beyond(c) <= MAX_CLAMP_PROBABILITY, -1, seen)
    )
    radius = max(radius, visible)
    ideal = at.accounts.pure_profile(rate) if certain else at.accounts.noise_profile(total)
    profile: PrivacyProfile = RarelyClampedProfile(ideal, min(1.0, reports * law.beyond(radius)))
    if bounded or (is_narrow and at.axes == at.rounds == at.grain == 1):
        # Where a report is clamped with the whole of delta the promise is broken, so less padding need not be tried.
        min_radius = -1 if bounded else last_certified_integer(lambda c: reports * law.beyond(c) < target.delta, -1, radius) - 1
        tight, max_radius = (
            last_certified_integer(lambda c: target.nearly_kept_by(exactly(c)), min_radius, radius),
            2 * enough if bounded else radius,
        )
        tight = max(tight, visible)
        while tight < max_radius and not target.kept_by(exactly(tight)):
            tight += max(1, tight // 50)
        if tight < max_radius:
            radius, profile = tight, exactly(tight)
        elif bounded:
            raise NotCertified("no bounded noise up to twice the tail of one share could be verified; use padding='clamp'.")
    if isinstance(profile, RarelyClampedProfile) and clamping_penalty(target.epsilon, profile.clamp_probability) > room:
        raise NotCertified(f"clamping is not rare enough to be certified at epsilon {target.epsilon:g}; use the modular encoding.")
    randomizers = tuple(randomizer.pinned() for randomizer in at.randomizers(share, rate, padding, radius))
    protocol = at.sums(name, "shuffler", randomizers)
    # (accounted as whoever receives the task will do it)
    return at.offered(protocol, account_of(at, protocol), rate=rate, shape=total_shape, padding=padding, radius=radius)


def _interval_padding(at: SumSetting, noise: Polya) -> int:
    """A padding at which, among all who may report, anybody is clamped so rarely that a 95 % interval can be given.

    Privacy counts the honest reports only, but an interval has to hold for everybody's.
    """
    return math.ceil(noise.tail_radius(math.log(MAX_CLAMP_PROBABILITY / (at.setting.users * at.axes))))


def shapes(at: SumSetting) -> list[int]:
    """Total shapes B to offer: 1 (Polya), two in between, honest (geometric), and the one that meets a cap on local epsilon."""
    setting = at.setting
    if setting.shapes is not None:
        return sorted(setting.shapes)
    offered = {1, setting.honest}
    if setting.honest >= 27 and setting.target.delta > 0.0:
        offered |= {round(setting.honest ** (1.0 / 3.0)), round(setting.honest ** (2.0 / 3.0))}
    cap = setting.max_local_epsilon
    if cap is not None and setting.target.delta > 0.0 and (setting.wants("polya-shuffle") or setting.wants("geometric-shuffle")):
        offered.add(_shape_under(at, cap))
    return sorted(offered)


def _shape_under(at: SumSetting, cap: float) -> int:
    """Smallest total shape found whose single report stays below the cap on local epsilon (that of the least epsilon if none does).

    A larger shape puts more noise into each report, but also allows a larger rate: the report's epsilon falls and rises
    again. So shapes are doubled until one fits; if none does, the valley around the best of them is searched; then bisected.
    """

    @cache
    def report(shape: int) -> float:
        rate = _noise_rate(at, shape, at.setting.target.delta, relative=1e-4)
        noise, accounts = Polya(Fraction(shape, at.honest), rate), at.accounts
        of_places = isinstance(accounts, PlaceAccounts)
        return (accounts.report_profile(AdditiveNoise(noise)) if of_places else accounts.noise_profile(noise)).pure(at.target.distance)

    def fits(shape: int) -> bool:
        # The candidate's own rate is calibrated more closely, so it may be a little larger.
        return report(shape) <= cap * (1.0 - 1e-3)

    doubled = [*(2**power for power in range(at.honest.bit_length()) if 2**power < at.honest), at.honest]
    fitting = next((shape for shape in doubled if fits(shape)), None)
    if fitting is None:
        best = min(range(len(doubled)), key=lambda index: report(doubled[index]))
        low, high = doubled[max(best - 1, 0)], doubled[min(best + 1, len(doubled) - 1)]
        while high - low > 2:  # the valley has one floor
            third = (high - low) // 3
            low, high = (low, high - third) if report(low + third) <= report(high - third) else (low + third, high)
        fitting = min(range(low, high + 1), key=report)
        if not fits(fitting):
            return fitting
    below = max((shape for shape in doubled if shape < fitting), default=0)
    return last_certified_integer(fits, below, fitting)


def share_of(at: SumSetting, total_shape: int) -> tuple[str, Fraction]:
    """The protocol's name and one person's shape: the honest people together hold `total_shape`."""
    if total_shape == at.honest and at.honest > 1:
        return "geometric-shuffle", Fraction(1)
    return "polya-shuffle", Fraction(total_shape, at.honest)


def _noise_rate(at: SumSetting, total_shape: int, delta: float, relative: float = RATE_TOLERANCE) -> float:
    """Largest sampled rate whose exact noise keeps the target with that much of delta."""
    accounts = at.accounts
    pure = accounts.pure_rate()
    if delta == 0.0 or (total_shape == 1 and at.rounds == 1) or isinstance(accounts, PlaceAccounts):
        return samplable_rate(pure)
    precise = relative if at.rounds == 1 and at.axes == 1 else max(relative, 1e-5)

    def profile(rate: float) -> PrivacyProfile:
        # That of the rate that will be sampled, whose law then is at hand when it is accounted.
        return accounts.noise_profile(Polya(Fraction(total_shape), samplable_rate(rate)))

    target = at.target.with_delta(delta)
    plain = at.grain == at.rounds == at.axes == 1
    guess, steepness = _scaled_guess(at, total_shape, target) if plain else (at.rates.get(total_shape, at.normal_rate(total_shape)), None)
    guess = max(guess, 1.001 * pure)
    at.rates[total_shape] = samplable_rate(largest_rate(profile, target, start=pure, relative=precise, guess=guess, steepness=steepness))
    return at.rates[total_shape]


def _scaled_guess(at: SumSetting, total_shape: int, target: Target) -> tuple[float, float | None]:
    """About the rate that keeps a target on one axis, and how steeply its delta rises there; over many cells from the same target over
    fewer, where the laws have nearly the same form.

    The variance shape / (2 sinh^2(rate / 2)) goes with the square of the cells, and what else differs with its inverse.
    """
    rate, steps, steepness = at.normal_rate(total_shape), math.floor(target.distance), None
    for cells in FEWER_CELLS:
        fewer = max(1, round(steps * cells / at.normal_deviation))
        scale = steps / fewer
        if scale < 4.0:
            break
        rate = 2.0 * math.asinh(scale * math.sinh(0.5 * rate))
        smaller = target.model_copy(update={"distance": fewer * (target.distance / steps)})
        floor = smaller.slope * (1.0 - 1e-12)
        steered = MemoizedCheck(partial(_shortfall, smaller, total_shape), floor, 2.0 * MAX_RATE)
        likely = -2.0 * math.log(target.delta) if steepness is None else steepness
        relative = max(0.1 / cells**2, 1e-9)
        steepness = steered.enclose(max(rate, 1.001 * floor), likely, relative, known=steepness is not None)
        rate = 2.0 * math.asinh(math.sinh(0.5 * steered.passing) / scale)
    return rate, steepness


def _shortfall(target: Target, total_shape: int, rate: float) -> float:
    return target.shortfall(AdditiveNoise(Polya(Fraction(total_shape), rate)))


def samplable_rate(rate: float) -> float:
    """The largest rate not above `rate` that can be sampled exactly (more noise, never less)."""
    return float(rational_rate(min(rate, float(LARGEST_RATE))))

"""A setting with a summed query, and the noise rate that meets its target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.encodings import modulus_for
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.samplers import LARGEST_RATE, rational_rate
from metricshuffle.numerics.certified_search import MemoizedCheck
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.setting import Setting, step_sentence
from metricshuffle.privacy.calibration import largest_rate
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.place_accounts import PlaceAccounts
from metricshuffle.protocols.protocol import Account
from metricshuffle.protocols.sum_accounts import SumAccounts
from metricshuffle.protocols.sums import Accounts, Randomizer, Sums
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer, Padding

# Logarithm of the largest probability that a modular sum wraps around (e^-46 = 1e-20), which makes
# the estimate err and never weakens privacy.
WRAP_LOG_PROBABILITY = -46.0
# Relative tolerance of rates: negligibly more noise than needed.
RATE_TOLERANCE = 1e-7
# Noise with more cells per standard deviation is first calibrated with about these numbers.
FEWER_CELLS = (128.0, 2048.0, 32768.0)
# Largest rate of any noise.
MAX_RATE = 32.0


@dataclass(frozen=True)
class SumSetting:
    """A setting with a summed query, with the steps in which values are counted."""

    setting: Setting
    query: SummedQuery
    rates: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Last calibrated rate by total shape: a starting point for the next, similar calibration."""

    @cached_property
    def grain(self) -> int:
        return self.query.grain(self.setting.granularity)

    @cached_property
    def grains(self) -> tuple[int, ...]:
        """Steps (for places: points) along each axis that are rounded to one cell of the noise."""
        return self.query.grains(self.setting.granularity, self.step)

    @cached_property
    def step(self) -> float:
        setting = self.setting
        return self.query.planned_step(
            setting.target, setting.users, setting.rounds, setting.granularity
        )

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
            whole = sum(
                -(-span // grain) for span, grain in zip(self.spans, self.grains, strict=True)
            )
            return PlaceAccounts(self.target, whole, self.rounds)
        return SumAccounts(self.target, self.axes, self.grain, self.rounds)

    @cached_property
    def spans(self) -> tuple[int, ...]:
        return self.query.spans(self.step)

    def check(self) -> None:
        """Raise unless there are steps and the distance is at least one of them."""
        self.query.check_new()
        if self.grain and self.query.rounding is None and self.target.distance < 1.0:
            raise InputError(step_sentence(self.query, self.setting.target.distance, self.step))

    @cached_property
    def normal_deviation(self) -> float:
        """Approximate standard deviation, in cells, of normal noise that meets the target.

        A starting point for searches; needs delta > 0.
        """
        depth = math.sqrt(-2.0 * math.log(self.target.delta))
        shift = math.sqrt(depth * depth + 2.0 * self.target.epsilon) - depth
        # A generous delta covers a move by itself: normal laws s deviations apart differ by
        # s/sqrt(2 pi) in total variation.
        shift = max(shift, math.sqrt(2.0 * math.pi) * self.target.delta)
        return self.target.distance / self.grain * math.sqrt(self.rounds) / shift

    def normal_rate(self, total_shape: int) -> float:
        """Rate at which noise of this shape has the variance of the normal noise."""
        return 2.0 * math.asinh(math.sqrt(0.5 * total_shape) / self.normal_deviation)

    def randomizers(
        self, shape: object, rate: float, padding: Padding, radius: int = 0
    ) -> tuple[AdditiveRandomizer, ...]:
        """Return the same noise for every axis."""
        return tuple(
            AdditiveRandomizer(
                span=span, shape=shape, rate=rate, padding=padding, radius=radius, granularity=grain
            )
            for span, grain in zip(self.spans, self.grains, strict=True)
        )

    def modular(self, name: str, noise: Polya, draws: int, trusted: Who, shares: int = 1) -> Sums:
        """Exact noise in residues of a modulus that is large enough for almost every total."""
        randomizers = self.randomizers(noise.shape, noise.rate, "none")
        radius = math.ceil(
            noise.summed(draws).tail_radius(WRAP_LOG_PROBABILITY - math.log(self.axes))
        )
        modulus = modulus_for(
            self.setting.users, max(randomizer.top for randomizer in randomizers), radius
        )
        return self.sums(name, trusted, randomizers, modulus=modulus, shares=shares)

    def sums(
        self, name: str, trusted: Who, randomizers: Sequence[Randomizer], **encoded: object
    ) -> Sums:
        """Build the protocol of these randomizers."""
        return Sums(
            name=name,
            trusted=trusted,
            step=self.step,
            randomizers=tuple(randomizers),
            rounding=self.query.rounding,
            **encoded,
        )

    def offered(self, protocol: Sums, account: Account, **details: object) -> Candidate:
        """Return the candidate; raises unless its account meets the target at every distance."""
        if not account.kept:
            raise NotCertified(
                "the calibrated noise did not pass the final verification; please report "
                "this as a bug."
            )
        return self.described(protocol, account, **details)

    def described(self, protocol: Sums, account: Account, **details: Any) -> Candidate:
        made = candidate(self.setting, protocol, account, **details)
        if protocol.trusted == "curator":
            return made
        # If a unit is less than a step, it moves a value by at most one step. Its length in steps,
        # like the distance, may have a rounding error.
        profile = protocol.report_profile(self.setting.target, self.rounds)
        shortest = 1.0 if self.query.rounding is None else 0.0
        per_unit = profile.epsilon(
            made.fallback.delta, max(1.0 / self.step * (1.0 + 1e-12), shortest)
        )
        return made.model_copy(update={"local_epsilon_per_unit": per_unit})


def account_of(at: SumSetting, protocol: Sums) -> Account:
    return protocol.account(at.query, at.setting.target, at.honest, at.rounds)


def share_of(at: SumSetting, total_shape: int) -> tuple[str, Fraction]:
    """Name of the protocol, and shape of one honest person's share of the total shape."""
    if total_shape == at.honest and at.honest > 1:
        return "geometric-shuffle", Fraction(1)
    return "polya-shuffle", Fraction(total_shape, at.honest)


def noise_rate(
    at: SumSetting, total_shape: int, delta: float, relative: float = RATE_TOLERANCE
) -> float:
    """Largest rate found that can be sampled and whose exact noise meets the target at `delta`."""
    accounts = at.accounts
    pure = accounts.pure_rate()
    if delta == 0.0 or (total_shape == 1 and at.rounds == 1) or isinstance(accounts, PlaceAccounts):
        return samplable_rate(pure)
    precise = relative if at.rounds == 1 and at.axes == 1 else max(relative, 1e-5)

    def profile(rate: float) -> PrivacyProfile:
        # Uses the rate that will be sampled, so that its law is cached for the account.
        return accounts.noise_profile(Polya(Fraction(total_shape), samplable_rate(rate)))

    target = at.target.with_delta(delta)
    plain = at.grain == at.rounds == at.axes == 1
    guess = at.rates.get(total_shape, at.normal_rate(total_shape))
    steepness = None
    if plain:
        guess, steepness = _scaled_guess(at, total_shape, target)
    guess = max(guess, 1.001 * pure)
    rate = largest_rate(
        profile, target, start=pure, relative=precise, guess=guess, steepness=steepness
    )
    at.rates[total_shape] = samplable_rate(rate)
    return at.rates[total_shape]


def _scaled_guess(at: SumSetting, total_shape: int, target: Target) -> tuple[float, float | None]:
    """Approximate rate that meets a target on one axis, and how steeply delta increases there.

    For noise over many cells, the search starts from the same target over fewer cells. The laws
    have nearly the same form: the variance shape / (2 sinh^2(rate / 2)) is proportional to the
    square of the number of cells, and the remaining differences to the inverse of that square.
    """
    rate = at.normal_rate(total_shape)
    steps = math.floor(target.distance)
    steepness = None
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
        steepness = steered.enclose(
            max(rate, 1.001 * floor), likely, relative, known=steepness is not None
        )
        rate = 2.0 * math.asinh(math.sinh(0.5 * steered.passing) / scale)
    return rate, steepness


def _shortfall(target: Target, total_shape: int, rate: float) -> float:
    return target.shortfall(AdditiveNoise(Polya(Fraction(total_shape), rate)))


def samplable_rate(rate: float) -> float:
    """Largest rate not above `rate` that can be sampled exactly (more noise, never less)."""
    return float(rational_rate(min(rate, float(LARGEST_RATE))))

"""What a floor costs: the errors with and without it, and the decision that `floor` asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metricshuffle.errors import ArgumentNames, InputError, argument, python_name
from metricshuffle.models import FrozenModel, OrInfinite
from metricshuffle.numerics.rounding import format_epsilon
from metricshuffle.planning.candidate import (
    TRUST_ORDER,
    Candidate,
    allowed_candidates,
    most_exact,
)
from metricshuffle.planning.setting import FloorRule, Setting
from metricshuffle.privacy.guarantee import Who
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.shuffler_noise import ShufflerNoise

MAX_PRICE = 1.5
"""Ratio of the errors with and without a floor up to which `floor="auto"` takes the floor."""
SMALL_PRICE = 1.1
"""Ratio up to which the price is not worth a sentence: simulated errors differ by as much."""


class FloorPrice(FrozenModel):
    """The errors of a plan with the floor and without it, and whether it was left out.

    `error` and `epsilon` (of one report) belong to the most exact candidate within the limits,
    other than noisy vectors without their floor. This candidate may be another protocol: `floored`
    says whether it has a floor. `error_without` is the error of noisy vectors without a floor,
    whose values `trusted` can read.
    """

    error: OrInfinite
    error_without: OrInfinite
    epsilon: OrInfinite
    floored: bool
    left_out: bool
    limited: bool
    """Whether a limit on the local epsilon excludes vectors without a floor."""
    trusted: Who

    @property
    def times(self) -> float:
        """Ratio of the error with the floor to the error without it."""
        return max(1.0, self.error / self.error_without)

    def sentence(self, rule: FloorRule, names: ArgumentNames = python_name) -> str:
        """Say what the floor costs and what would leave it out; empty if it costs little.

        `rule` is what was requested; `names` formats arguments for an interface.
        """
        times = f"{self.times:.3g}"
        readable = f"a colluding {self.trusted} reads everything"
        if self.left_out:
            cost = (
                f"a floor of {format_epsilon(self.epsilon)} would make errors {times} times larger"
                if self.floored
                else f"every protocol that hides values from the {self.trusted} would have errors "
                f"{times} times larger"
            )
            return f"There is no floor, because {cost} (more than {MAX_PRICE:g} times): {readable}."
        if rule == "always" and self.times <= SMALL_PRICE:
            return ""
        allowed = f"not more than {MAX_PRICE:g} times"
        cost = f"A floor of {format_epsilon(self.epsilon)} makes errors {times} times larger"
        if not self.floored:
            cost = f"Errors are {times} times larger than those of noisy vectors without a floor"
        if self.limited:
            return f"{cost}."
        if rule == "auto":
            return f"{cost} ({allowed}, so {'it stays' if self.floored else 'they are not taken'})."
        another: FloorRule = "auto" if self.times > MAX_PRICE else "never"
        limit = f" where it costs more than {MAX_PRICE:g} times" if another == "auto" else ""
        does = f"leaves it out{limit}"
        if not self.floored:
            gain = f" where they gain more than {MAX_PRICE:g} times" if another == "auto" else ""
            does = f"takes those{gain}"
        template = f"{cost}; {argument('floor', another)} {does}, and then {readable}."
        return InputError(template).text(names)


def decide_floor(
    setting: Setting, candidates: Sequence[Candidate]
) -> tuple[list[Candidate], FloorPrice | None]:
    """Return the candidates as the setting's `floor` wants them, and the price of the floor.

    Noisy vectors that could have a floor and have none are baselines. With "auto" they become
    candidates if every other candidate within the limits has an error more than MAX_PRICE times as
    large, unless there is a limit on the local epsilon.
    """
    bare = [
        (index, offer)
        for index, offer in enumerate(candidates)
        if offer.baseline
        and isinstance(offer.mechanism, NoisyVectors)
        and TRUST_ORDER[offer.trusted] <= TRUST_ORDER[setting.trusted]
        and (setting.max_bits is None or offer.bits_per_user <= setting.max_bits)
        and (setting.max_damage is None or offer.keeps_damage(setting.max_damage, setting.liars))
    ]
    if not bare or setting.floor == "never":
        return list(candidates), None
    index, without = min(bare, key=lambda row: row[1].expected_error)
    usable = [offer for _, offer in allowed_candidates(setting, candidates)]
    allowed = setting.floor == "auto" and setting.max_local_epsilon is None
    price = None
    left_out = allowed
    if usable and 0.0 < without.expected_error < math.inf:
        best = most_exact(usable)
        left_out = allowed and best.expected_error > MAX_PRICE * without.expected_error
        price = FloorPrice(
            error=best.expected_error,
            error_without=without.expected_error,
            epsilon=best.local_epsilon,
            floored=getattr(best.mechanism, "floor", None) is not None,
            left_out=left_out,
            limited=setting.max_local_epsilon is not None,
            trusted=without.trusted,
        )
    decided = list(candidates)
    if left_out:
        for place, offer in enumerate(candidates):
            trusted_enough = TRUST_ORDER[offer.trusted] <= TRUST_ORDER[setting.trusted]
            if place == index or (isinstance(offer.mechanism, ShufflerNoise) and trusted_enough):
                decided[place] = offer.model_copy(update={"baseline": False})
    return decided, price

"""One calibrated protocol of a plan: its numbers, what it promises, and what is left if the shuffler colludes."""

from __future__ import annotations

import math
from typing import Literal

from metricshuffle.accounting.sums.additive import AdditiveNoise
from metricshuffle.accounting.sums.planar import PerAxis, PlanarNoise
from metricshuffle.declared import Declared, OrInfinite
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.guarantee import Guarantee, Trust, Who
from metricshuffle.privacy.profile import PrivacyProfile
from metricshuffle.protocols.sums import ProtocolName, SumProtocol

TRUST_ORDER = {"nobody": 0, "shuffler": 1, "aggregator": 1, "curator": 2}


class Candidate(Declared):
    """A protocol that keeps the target, with the numbers that decide between protocols.

    `rate` is the noise's own epsilon per step (per coarse cell if values are rounded first, per grid cell for a
    centroid); `shape` the total shape of the honest people's noise; `expected_error` E|estimate - truth| in query
    units; `local_epsilon` the epsilon of one report at the target's distance.
    """

    protocol: ProtocolName
    encoding: Literal["unary", "modular"]
    rate: float | None
    flip: float | None = None
    shape: int | None = None
    padding: Literal["clamp", "bounded"] | None = None
    radius: int | None = None
    expected_error: float
    standard_error: float
    local_epsilon: OrInfinite
    local_epsilon_per_unit: OrInfinite
    bits_per_user: int
    messages_per_user: int
    guarantee: Guarantee
    fallback: Guarantee
    baseline: bool
    mechanism: SumProtocol

    @property
    def trusted(self) -> Who:
        return self.guarantee.trust.trusted


def candidate(
    setting: Setting, protocol: SumProtocol, profile: PrivacyProfile | None, *, rate: float | None, flip: float | None = None,
    shape: int | None = None, padding: Literal["clamp", "bounded"] | None = None, radius: int | None = None, delta: float | None = None,
) -> Candidate:  # fmt: skip
    """Put the numbers of a calibrated protocol together. `profile` None means the report alone keeps the target (pure)."""
    target, query = setting.target, setting.query
    trusted: Who = {"shuffler": "shuffler", "aggregator": "aggregator", "analyst": "nobody", "curator": "curator"}[protocol.transport]  # type: ignore[assignment]
    trust = Trust(trusted=trusted, honest_reports=setting.honest if trusted in ("shuffler", "aggregator") else None)
    local = _report_profile(setting, protocol)
    protects: Literal["one person", "people together"] = "people together" if setting.grain == 1 else "one person"
    if trusted == "nobody":
        # Pure reports: epsilons of several people add, so a linear promise holds for a total distance too.
        protects, delta = ("people together" if target.shape == "linear" else "one person"), 0.0
    guarantee = Guarantee(
        epsilon=target.epsilon, delta=target.delta if delta is None else delta, distance=target.distance, unit=query.unit,
        shape=target.shape, protects=protects, trust=trust, bound="pure" if profile is None else profile.bound,
        rounds=setting.rounds, between=query.between,
    )  # fmt: skip
    if trusted == "curator":
        one = math.inf
        per_unit = math.inf
        local_delta = 0.0
    else:
        steps = setting.promise.distance
        local_delta = 0.0 if math.isfinite(local.pure(steps)) else target.delta
        one = local.epsilon(local_delta, steps)
        # One unit may be less than a step, and is then a step at most; like the distance it may be off by a rounding.
        per_unit = local.epsilon(local_delta, max(1.0 / setting.step * (1.0 + 1e-12), 1.0))
    fallback = Guarantee(
        epsilon=one, delta=local_delta, distance=target.distance, unit=query.unit, shape="flat", protects="one person",
        trust=Trust(trusted="nobody"), bound="raw values seen" if trusted == "curator" else local.bound,
        rounds=setting.rounds, between=query.between,
    )  # fmt: skip
    scale = query.error_scale(setting.users, setting.granularity)
    return Candidate(
        protocol=protocol.name, encoding=protocol.encoding, rate=rate, flip=flip, shape=shape, padding=padding, radius=radius,
        expected_error=protocol.mean_error(setting.users) * scale,
        standard_error=math.sqrt(float((protocol.standard_errors(setting.users) ** 2).sum())) * scale,
        local_epsilon=one, local_epsilon_per_unit=per_unit, bits_per_user=protocol.bits_per_user,
        messages_per_user=sum(encoding.messages_per_user for encoding in protocol.encodings),
        guarantee=guarantee, fallback=fallback, baseline=TRUST_ORDER[trusted] > TRUST_ORDER[setting.trusted], mechanism=protocol,
    )  # fmt: skip


def _report_profile(setting: Setting, protocol: SumProtocol) -> PrivacyProfile:
    """What one person's report hides if everybody else colludes, over all rounds (the worse axis stands for both).

    Additive noise is the same on both axes. Counts of randomized bits have a finite pure epsilon, which is all that is
    asked for here, and the longer axis has the larger one: more of its bits can move.
    """
    axis = max(protocol.randomizers, key=lambda randomizer: randomizer.span).local_profile()
    if len(protocol.randomizers) == 1:
        return setting.over_rounds(axis)
    if isinstance(axis, AdditiveNoise) and math.isfinite(axis.pure(1)):
        return setting.over_rounds(PlanarNoise(axis))
    return PerAxis(setting.over_rounds(axis))

"""Calibration of noise on feature vectors of users' items, per user or on the curator's sum."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from metricshuffle.accounting.sums.rare_clamping import clamping_penalty
from metricshuffle.accounting.user_items.lipschitz import NormName
from metricshuffle.accounting.user_items.metric_gaussian import gaussian_sigma
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.noise.k_norm import MAX_DIMENSIONS
from metricshuffle.noise.polytope import Polytope
from metricshuffle.numerics.rounding import format_number
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.guarantee import Who
from metricshuffle.protocols.answer_features import (
    NO_TREE,
    AnswerFeatures,
    Columns,
    PointShares,
    TreeEdges,
)
from metricshuffle.protocols.answer_noise import AnswerNoise, KNormNoise, Noise
from metricshuffle.protocols.item_accounts import rate_of
from metricshuffle.protocols.noisy_answers import SCALE_SLACK, NoisyAnswers
from metricshuffle.queries.user_queries import UserHistogram, UserLinearQuery

NAMES: dict[Noise, str] = {
    "l1": "laplace",
    "l2": "sphere",
    "linf": "cube",
    "gaussian": "gaussian",
    "k-norm": "k-norm",
}
NORMS: tuple[NormName, ...] = ("l1", "l2", "linf")
NEARLY_EXACT = "drawn only nearly exactly"
TRUSTED: tuple[Who, ...] = ("nobody", "curator")


@family
def noisy_answers(setting: Setting) -> Iterator[Offer]:
    """Offer noise on tree edges or shares for histograms, and in every norm for linear queries.

    Noise on shares is offered only if there is no tree. In one dimension all norms are equal, so
    only one is offered.
    """
    query = setting.query
    for trusted in TRUSTED:
        if isinstance(query, UserHistogram):
            yield Offer("tree-laplace", None, partial(_tree, setting, query, trusted))
            if query.tree is None:
                yield Offer(
                    "share-laplace",
                    None,
                    partial(
                        calibrate_answers, setting, "share-laplace", PointShares(), "l1", trusted
                    ),
                )
        elif isinstance(query, UserLinearQuery):
            norms = NORMS[: 1 if query.table.shape[1] == 1 else 3]
            kinds: tuple[Noise, ...] = (*norms, "gaussian") if setting.target.delta > 0.0 else norms
            for kind in kinds:
                yield Offer(
                    NAMES[kind],
                    None,
                    partial(calibrate_answers, setting, NAMES[kind], Columns(), kind, trusted),
                )
            if trusted == "curator" and query.table.shape[1] > 1:
                yield Offer("k-norm", None, partial(_k_norm, setting, query))


def _tree(setting: Setting, query: UserHistogram, trusted: Who) -> Candidate:
    if query.tree is None:
        raise NotCertified(NO_TREE)
    return calibrate_answers(setting, "tree-laplace", TreeEdges(), "l1", trusted)


def _k_norm(setting: Setting, query: UserLinearQuery) -> Candidate:
    """Calibrate noise in the norm of the polytope of the query."""
    if not setting.target.delta > 0.0:
        raise NotCertified(f"its noise is {NEARLY_EXACT}, which takes a delta above 0.")
    return calibrate_answers(setting, "k-norm", Columns(), query.polytope, "curator")


def calibrate_answers(
    setting: Setting, name: str, features: AnswerFeatures, kind: Noise | Polytope, trusted: Who
) -> Candidate:
    """Calibrate the least noise that meets the target; `kind` may be the polytope of a norm.

    Features change by at most their constant per unit of distance. If one user's items move, the
    sum over the users changes by no more than this user's answer, so the noise is the same for both
    kinds of trust; in the mean over n users it is divided by n.
    """
    query = setting.query
    target = setting.target
    rounds = setting.rounds
    coordinates = features.coordinates(query).numbers.shape[1]
    # The difference between the sampled law and the accounted law is charged to the target's delta.
    if kind != "l1" and coordinates > MAX_DIMENSIONS:
        raise ConditionError(
            name,
            f"vectors of at most {MAX_DIMENSIONS:,} numbers (more take Laplace noise only)",
            f"{coordinates:,}",
        )
    constant = features.constant(query, _noise(kind, 1.0, coordinates).norm)
    if not constant > 0.0:
        raise InputError(
            "the function is the same at every point, so its mean is known without asking anybody."
        )
    rate = rate_of(target) / rounds
    lost = (
        0.0
        if kind == "l1"
        else _delta_left(setting, _noise(kind, constant / rate, coordinates).inexactness * 2.0)
    )
    if lost > (0.0 if kind == "l1" else 0.5 * target.delta):
        raise NotCertified(
            f"its noise is {NEARLY_EXACT}, which takes delta {lost:.2g} at "
            f"epsilon {format_number(target.epsilon)}."
        )
    if kind == "gaussian":
        deviation = gaussian_sigma(
            rate_of(target), math.nextafter(target.delta - lost, 0.0), target.distance
        )
        scale = constant * deviation * math.sqrt(rounds)
    else:
        scale = constant / rate
    noise = _noise(kind, scale * SCALE_SLACK, coordinates)
    if _delta_left(setting, noise.inexactness) > lost:
        raise NotCertified(
            f"its noise is sampled to within {noise.inexactness:.2g} only, which delta "
            f"{target.delta:.2g} does not allow."
        )
    protocol = NoisyAnswers(name=name, trusted=trusted, features=features, noise=noise)
    account = protocol.account(query, target, setting.honest, rounds)
    if not account.kept:
        raise NotCertified(
            "the calibrated noise did not pass the final verification; please report this as a bug."
        )
    return candidate(setting, protocol, account)


def _noise(kind: Noise | Polytope, scale: float, coordinates: int) -> AnswerNoise:
    if isinstance(kind, Polytope):
        return KNormNoise(scale, kind.facets)
    return AnswerNoise(kind, scale, coordinates)


def _delta_left(setting: Setting, inexactness: float) -> float:
    return clamping_penalty(setting.target.epsilon, min(1.0, setting.rounds * inexactness))

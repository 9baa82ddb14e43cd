"""Noise on vectors of features of users' items: on everybody's own vector, or on the sum of all by a curator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from metricshuffle.accounting.sums.rare_clamping import clamping_penalty
from metricshuffle.accounting.user_items.lipschitz import NormName
from metricshuffle.accounting.user_items.metric_gaussian import gaussian_sigma
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.noise.k_norm import MAX_DIMENSIONS
from metricshuffle.numerics.rounding import format_number
from metricshuffle.planning.candidate import Candidate, candidate
from metricshuffle.planning.candidates.registry import Offer, family
from metricshuffle.planning.setting import Setting
from metricshuffle.privacy.guarantee import Who
from metricshuffle.protocols.answer_features import NO_TREE, AnswerFeatures, Columns, PointShares, TreeEdges
from metricshuffle.protocols.answer_noise import AnswerNoise, Noise
from metricshuffle.protocols.item_accounts import rate_of
from metricshuffle.protocols.noisy_answers import SCALE_SLACK, NoisyAnswers
from metricshuffle.queries.user_queries import UserHistogram, UserLinearQuery

NAMES: dict[Noise, str] = {"l1": "laplace", "l2": "sphere", "linf": "cube", "gaussian": "gaussian"}
NORMS: tuple[NormName, ...] = ("l1", "l2", "linf")
TRUSTED: tuple[Who, ...] = ("nobody", "curator")


@family
def noisy_answers(setting: Setting) -> Iterator[Offer]:
    """Along a tree, on shares where there is none, and every norm for a linear query (in one dimension all norms are one)."""
    query = setting.query
    for trusted in TRUSTED:
        if isinstance(query, UserHistogram):
            yield Offer("tree-laplace", None, partial(_tree, setting, query, trusted))
            if query.tree is None:
                yield Offer("share-laplace", None, partial(calibrate_answers, setting, "share-laplace", PointShares(), "l1", trusted))
        elif isinstance(query, UserLinearQuery):
            norms = NORMS[: 1 if query.table.shape[1] == 1 else 3]
            kinds: tuple[Noise, ...] = (*norms, "gaussian") if setting.target.delta > 0.0 else norms
            for kind in kinds:
                yield Offer(NAMES[kind], None, partial(calibrate_answers, setting, NAMES[kind], Columns(), kind, trusted))


def _tree(setting: Setting, query: UserHistogram, trusted: Who) -> Candidate:
    if query.tree is None:
        raise NotCertified(NO_TREE)
    return calibrate_answers(setting, "tree-laplace", TreeEdges(), "l1", trusted)


def calibrate_answers(setting: Setting, name: str, features: AnswerFeatures, kind: Noise, trusted: Who) -> Candidate:
    """The least noise that keeps the target: features move by at most their constant per unit of distance.

    The sum over the users moves by no more than one user's answer, so both kinds of trust take the same noise; the mean over n
    users divides it by n.
    """
    query, target, rounds = setting.query, setting.target, setting.rounds
    coordinates = features.coordinates(query).numbers.shape[1]
    # What the law that is drawn may differ from the law that is accounted for is paid for out of the target's delta.
    if kind != "l1" and coordinates > MAX_DIMENSIONS:
        raise ConditionError(name, f"vectors of at most {MAX_DIMENSIONS:,} numbers (more take Laplace noise only)", f"{coordinates:,}")
    norm: NormName = kind if kind != "gaussian" else "l2" if coordinates > 1 else "l1"
    constant = features.constant(query, norm)
    if not constant > 0.0:
        raise InputError("the function is the same at every point, so its mean is known without asking anybody.")
    rate = rate_of(target) / rounds
    lost = 0.0 if kind == "l1" else _delta_left(setting, AnswerNoise(kind, constant / rate, coordinates).inexactness * 2.0)
    if lost > (0.0 if kind == "l1" else 0.5 * target.delta):
        raise NotCertified(
            f"its noise is drawn only nearly exactly, which takes delta {lost:.2g} at epsilon {format_number(target.epsilon)}."
        )
    if kind == "gaussian":
        deviation = gaussian_sigma(rate_of(target), math.nextafter(target.delta - lost, 0.0), target.distance)
        scale = constant * deviation * math.sqrt(rounds)
    else:
        scale = constant / rate
    noise = AnswerNoise(kind, scale * SCALE_SLACK, coordinates)
    if _delta_left(setting, noise.inexactness) > lost:
        raise NotCertified(f"its noise is drawn to within {noise.inexactness:.2g} only, which delta {target.delta:.2g} does not allow.")
    protocol = NoisyAnswers(name=name, trusted=trusted, features=features, noise=noise)
    account = protocol.account(query, target, setting.honest, rounds)
    if not account.kept:
        raise NotCertified("the calibrated noise did not pass the final verification; please report this as a bug.")
    return candidate(setting, protocol, account)


def _delta_left(setting: Setting, inexactness: float) -> float:
    return clamping_penalty(setting.target.epsilon, min(1.0, setting.rounds * inexactness))

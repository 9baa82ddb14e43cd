"""Ways to answer a query about users' items, each calibrated to the least noise that certainly keeps the target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from metricshuffle.accounting.items.gaussian import MetricGaussian, gaussian_sigma
from metricshuffle.accounting.items.item_wise import ItemShuffle, ItemWiseProfile, calibrated, calibrated_family
from metricshuffle.accounting.items.lipschitz import NormName
from metricshuffle.accounting.items.moves import LARGEST_TOTAL
from metricshuffle.accounting.items.sampled_users import SampledProfile
from metricshuffle.accounting.sums.padded import clamping_penalty
from metricshuffle.declared import Declared
from metricshuffle.errors import ConditionError, InputError, NotCertified
from metricshuffle.noise.k_norm import MOST_DIMENSIONS
from metricshuffle.privacy.guarantee import Guarantee, Trust, Who, plain
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile, last_certified
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import Inversion
from metricshuffle.protocols.histogram import AnyRandomizer
from metricshuffle.protocols.user_queries import NO_TREE, UserHistogram, UserLinearQuery, UserQuery
from metricshuffle.protocols.user_vectors import AnswerNoise, Noise
from metricshuffle.randomizers.clustered_response import ClusteredResponse
from metricshuffle.randomizers.exponential import ExponentialMechanism
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.spaces import Clustered, Discrete, Users

Model = Literal["local", "shuffled", "central"]
TRUSTED: dict[Model, Who] = {"local": "nobody", "shuffled": "shuffler", "central": "curator"}
NAMES: dict[Noise, str] = {"l1": "laplace", "l2": "sphere", "linf": "cube", "gaussian": "gaussian"}
NORMS: tuple[NormName, ...] = ("l1", "l2", "linf")
# Item-wise reports carry the law of every point; more points make a table too large to invert.
MOST_ITEM_POINTS = 1024
WARNED_CONDITION = 1e3
BITS_PER_NUMBER = 64
# Distances added up along a long way are off by far less than this; reports are made by so much quieter.
SAFE_SHARE = 1.0 - 1e-9


class UserCandidate(Declared):
    """A way that keeps the target: noise on each user's answer, on the mean of all, or on every item.

    `expected_error` is the mean earth mover's distance to the true shares (histogram), or the mean absolute error of a coordinate,
    for items spread evenly.
    """

    name: str
    model: Model
    noise: AnswerNoise | None = None
    randomizer: AnyRandomizer | None = None
    item_rate: float | None = None
    expected_error: float
    bits_per_user: int
    condition: float | None = None
    """How many items one report can count for in the estimate (item-wise): the condition number in the sum norm."""
    guarantee: Guarantee
    fallback: Guarantee

    @property
    def warning(self) -> str:
        """What makes the estimate fragile, in a sentence; empty if nothing does."""
        if self.condition is None or self.condition <= WARNED_CONDITION:
            return ""
        return (
            f"{self.name} ({self.model}) is ill-conditioned: one report counts for up to {plain(self.condition)} items in the estimate, so "
            "that its shares come out only as well as their standard errors say; merge near points, or allow a larger rate."
        )


@dataclass(frozen=True)
class UserSetting:
    """What is asked, promised, and counted on."""

    query: UserQuery
    target: Target
    users: int
    honest: int
    samples: int | None = None
    """How many items everybody draws from hers, if their number may differ."""

    @property
    def rate(self) -> float:
        """Epsilon per unit of earth mover's distance, rounded down."""
        return math.nextafter(self.target.epsilon / self.target.distance, 0.0)

    def guarantee(self, model: Model, delta: float, bound: str) -> Guarantee:
        counted = self.honest if model == "shuffled" else None
        return Guarantee(
            epsilon=self.target.epsilon, delta=delta, distance=self.target.distance, unit=self.query.unit, shape=self.target.shape,
            protects="one user's items", trust=Trust(trusted=TRUSTED[model], honest_reports=counted), bound=bound,
            items=self.query.people.items or "any",
        )  # fmt: skip

    def alone(self, profile: PrivacyProfile | None, delta: float = 0.0) -> Guarantee:
        """What is left if whoever is trusted colludes; None: the raw items were seen."""
        distance, epsilon = self.target.distance, math.inf
        if profile is not None:
            ceiling = profile.pure(distance)
            # three digits are enough, and every step of the search may take long; the last value that was certified
            covered = partial(_covered, profile, delta, distance)
            epsilon = ceiling if delta == 0.0 or math.isinf(ceiling) else last_certified(covered, 0.0, ceiling, relative=1e-3)
        return Guarantee(
            epsilon=epsilon, delta=delta, distance=distance,
            unit=self.query.unit, shape="flat", protects="one user's items", trust=Trust(trusted="nobody"),
            bound="raw items seen" if profile is None else profile.bound, items=self.query.people.items or "any",
        )  # fmt: skip


def _covered(profile: PrivacyProfile, delta: float, distance: float, epsilon: float) -> bool:
    return profile.covers_at(epsilon, delta, distance)


def candidates(setting: UserSetting, methods: frozenset[str] | None = None) -> Iterator[UserCandidate | tuple[str, str]]:
    """Every way that fits (of the names in `methods`), or (its name, why it does not)."""
    from metricshuffle.planning.user_simulation import expected_error

    query = setting.query
    known = ("tree-laplace", "share-laplace", "item-wise") if isinstance(query, UserHistogram) else tuple(NAMES.values())
    unknown = sorted((methods or frozenset()) - set(known))
    if unknown or methods == frozenset():
        wanted = f"there is no method {unknown[0]!r}" if unknown else "methods names no method"
        raise InputError(f"{wanted} for a {query.kind} query; choose among {', '.join(known)}.")
    found: list[UserCandidate | tuple[str, str]] = []
    if isinstance(query, UserHistogram):
        if methods is None or "tree-laplace" in methods:
            found += _tree_noise(setting, query) if query.has_tree else [("tree-laplace", NO_TREE)]
        if not query.has_tree and (methods is None or "share-laplace" in methods):
            found += _share_noise(setting, query)
        if methods is None or "item-wise" in methods:
            found += _item_wise(setting, query)
    elif isinstance(query, UserLinearQuery):
        found += [
            one for one in _linear_noise(setting, query) if methods is None or (one[0] if isinstance(one, tuple) else one.name) in methods
        ]
    for one in found:
        if isinstance(one, tuple):
            yield one
            continue
        try:
            yield one.model_copy(update={"expected_error": expected_error(setting, one)})
        except NotCertified as wrong:  # reports from which the shares cannot be told
            yield one.name, f"({one.model}) {wrong}"


def _noisy(setting: UserSetting, name: str, kind: Noise, constant: float, coordinates: int) -> list[UserCandidate | tuple[str, str]]:
    """Noise on each user's answer (trusting nobody) and on the sum of all answers (a curator): `constant` is moved per unit of distance.

    The sum over the users moves by no more than one user's answer, so both take the same noise; the mean over n users divides it by n.
    """
    rate, target = setting.rate, setting.target
    # What the law that is drawn may differ from the law that is accounted for is paid for out of the target's delta.
    if kind != "l1" and coordinates > MOST_DIMENSIONS:
        return [(name, f"vectors of more than {MOST_DIMENSIONS:,} numbers take Laplace noise only")]
    lost = 0.0 if kind == "l1" else clamping_penalty(target.epsilon, AnswerNoise(kind, constant / rate, coordinates).inexactness * 2.0)
    if lost > (0.0 if kind == "l1" else 0.5 * target.delta):
        return [(name, f"its noise is drawn only nearly exactly, which takes delta {lost:.2g} at epsilon {plain(target.epsilon)}")]
    profile: PrivacyProfile
    if kind == "gaussian":
        deviation = gaussian_sigma(rate, math.nextafter(target.delta - lost, 0.0), target.distance)
        profile, scale, delta = MetricGaussian(deviation), constant * deviation, target.delta
    else:
        profile, scale, delta = PureProfile(rate), constant / rate, lost
    noise = AnswerNoise(kind, scale * (1.0 + 2.0**-50), coordinates)
    if clamping_penalty(target.epsilon, noise.inexactness) > lost:
        return [(name, f"its noise is drawn to within {noise.inexactness:.2g} only, which delta {target.delta:.2g} does not allow")]
    bound = profile.bound if kind == "l1" else f"{profile.bound}, drawn nearly exactly"
    models: tuple[Model, ...] = ("local", "central")
    return [
        UserCandidate(
            name=name, model=model, noise=noise, expected_error=math.inf, bits_per_user=BITS_PER_NUMBER * coordinates,
            guarantee=setting.guarantee(model, delta, bound),
            fallback=setting.alone(None) if model == "central" else setting.guarantee(model, delta, bound),
        )
        for model in models
    ]  # fmt: skip


def _tree_noise(setting: UserSetting, query: UserHistogram) -> list[UserCandidate | tuple[str, str]]:
    """Statement: along a tree the vector of length * mass below, over all edges, moves in sum by just the earth mover's distance."""
    return _noisy(setting, "tree-laplace", "l1", 1.0, query.tree.lengths.size)


def _share_noise(setting: UserSetting, query: UserHistogram) -> list[UserCandidate | tuple[str, str]]:
    """Statement: a share moves by at most w/(distance of the nearest points) if items move by w, and so does the share they come from."""
    try:
        return _noisy(setting, "share-laplace", "l1", query.constant, query.people.size)
    except InputError as wrong:  # points at distance 0 must not be told apart
        return [("share-laplace", str(wrong))]


def _linear_noise(setting: UserSetting, query: UserLinearQuery) -> list[UserCandidate | tuple[str, str]]:
    """K-norm noise in every norm, each with its own Lipschitz constant, and the Gaussian; in one dimension all norms are one."""
    columns = query.table.shape[1]
    constants = {norm: query.constant_in(norm) for norm in NORMS[: 1 if columns == 1 else 3]}
    if not min(constants.values()) > 0.0:
        raise InputError("the function is the same at every point, so its mean is known without asking anybody.")
    found = [one for norm in constants for one in _noisy(setting, NAMES[norm], norm, constants[norm], columns)]
    if setting.target.delta > 0.0:
        found += _noisy(setting, "gaussian", "gaussian", constants.get("l2", constants["l1"]), columns)
    return found


def _item_wise(setting: UserSetting, query: UserHistogram) -> list[UserCandidate | tuple[str, str]]:
    """Every item through a randomizer: with everybody's reports shuffled, and with each user's own (she sorts them before sending)."""
    people = query.people
    samples = people.items or setting.samples
    if setting.target.delta == 0.0:
        return [("item-wise", "shuffling hides with a delta above 0 only")]
    if people.size > MOST_ITEM_POINTS:
        return [("item-wise", f"the law of the reports is a table; {people.size:,} points are more than {MOST_ITEM_POINTS:,}")]
    if samples is None:
        return [("item-wise", "it needs a number of items that is the same for everybody; give `items`, or let everybody draw `samples`")]
    if people.items is None and setting.target.shape == "linear":
        return [("item-wise", "drawing samples hides all moves up to a distance alike, so it needs a target of shape 'flat'")]
    found: list[UserCandidate | tuple[str, str]] = []
    models: tuple[Model, ...] = ("local", "shuffled")
    for model in models:
        delta = setting.target.delta
        try:
            item_rate, bound, randomizer = calibrated_items(setting, people, "local" if model == "local" else "central")
            condition = Inversion.of(randomizer).condition
            alone: PrivacyProfile = ItemWiseProfile(item_rate, ItemShuffle.of("local", 1, samples, _reach(people)))
            alone = alone if people.items is not None else SampledProfile(alone, samples, _reach(people))
            fallback = setting.guarantee(model, delta, bound) if model == "local" else setting.alone(alone, delta)
        except (NotCertified, ConditionError, InputError) as wrong:  # too many items, too large a rate, reports that tell nothing
            found.append(("item-wise", f"({model}) {wrong}"))
            continue
        found.append(
            UserCandidate(
                name="item-wise", model=model, randomizer=randomizer, item_rate=item_rate, expected_error=math.inf,
                bits_per_user=samples * max(1, (randomizer.outputs - 1).bit_length()),
                condition=condition, guarantee=setting.guarantee(model, delta, bound), fallback=fallback,
            )
        )  # fmt: skip
    return found


def calibrated_items(setting: UserSetting, people: Users, shuffled: Literal["local", "central"]) -> tuple[float, str, Randomizer]:
    """The largest item rate that certainly keeps the target, the bound behind it, and the randomizer."""
    reach = _reach(people)
    shuffle = ItemShuffle.of(shuffled, setting.honest, people.items or setting.samples or 1, reach)
    make = item_randomizers(people)
    delta = setting.target.delta
    if people.items is None:
        epsilon, distance = setting.target.epsilon, setting.target.distance

        def sampled(item_rate: float) -> PrivacyProfile:
            return SampledProfile(ItemWiseProfile(item_rate, shuffle), shuffle.items, reach)

        most = LARGEST_TOTAL / reach * (1.0 - 1e-12)
        passing = min(most, epsilon / (shuffle.items * reach) * (1.0 - 1e-15))  # a full replacement of the samples, composed
        failing = min(most, 2.0 * passing)
        while passing < most and sampled(failing).covers_at(epsilon, delta, distance):
            passing, failing = failing, min(most, 2.0 * failing)
        rate = last_certified(lambda one: sampled(one).covers_at(epsilon, delta, distance), failing, passing, relative=1e-3)
        return rate, sampled(rate).bound, make(rate * SAFE_SHARE)
    if isinstance(people.items_in.metric, Clustered | Discrete):
        own = calibrated_family(make, shuffle, setting.rate, delta)
        return own.item_rate, own.bound, make(own.item_rate)
    found = calibrated(shuffle, setting.rate, delta)
    return found.item_rate, found.bound, make(found.item_rate * SAFE_SHARE)


def _reach(people: Users) -> float:
    """The diameter; where it is a sum of many lengths and may have been rounded down, a billionth more."""
    exact = isinstance(people.items_in.metric, Clustered | Discrete)
    return people.diameter if exact else people.diameter / SAFE_SHARE


def item_randomizers(people: Users) -> Callable[[float], Randomizer]:
    """From an item rate to the randomizer of one item."""
    metric = people.items_in.metric
    if isinstance(metric, Clustered) and metric.inner < 1.0:
        return lambda rate: ClusteredResponse(metric.clusters, metric.places, metric.inner, rate)
    if isinstance(metric, Clustered | Discrete):
        return lambda rate: KaryRandomizedResponse(people.size, rate)
    # Sums along a tree may differ by their last bit in the two directions.
    return lambda rate: ExponentialMechanism(np.minimum(people.distances, people.distances.T), rate)

"""Everything a plan is made from: a query, a target, the people, and what may be chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from metricshuffle.errors import InputError
from metricshuffle.numerics.rounding import format_distance, format_number
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.target import Honest, Target, checked_users, honest_count
from metricshuffle.queries.query import Query
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.tasks.wording import normalize_question, normalize_title

EncodingChoice = Literal["unary", "modular", "auto"]
ShareTransport = Literal["shuffler", "aggregator"]
Padding = Literal["clamp", "bounded"]
KindsOfPeople = Literal["any", "smooth", "spiky"]
"""What is known of how people are spread: nothing, evenly or in clusters, or at few points."""
MAX_SAMPLES = 10**6
OWN_RANDOMIZER = "own-randomizer"


@dataclass(frozen=True)
class Setting:
    """A query, a target and the people, with the choices that narrow the candidates."""

    query: Query
    target: Target
    users: int
    honest: int
    rounds: int = 1
    trusted: Who = "shuffler"
    encoding: EncodingChoice = "auto"
    padding: Padding = "clamp"
    granularity: float = 1.0
    samples: int | None = None
    transport: ShareTransport = "shuffler"
    max_local_epsilon: float | None = None
    max_bits: int | None = None
    floor: bool = True
    """Whether noisy vectors are made of values that were randomized first, for the day that the shuffler colludes."""
    most_items: int | None = None
    """Users with any number of items: how many one may hold if her vector is to be added up."""
    spread: KindsOfPeople = "any"
    """For which people the errors of histograms count, and feature sets of noisy vectors are chosen."""
    randomizer: Randomizer | None = None
    """One of the user's own, which is accounted for as it is; no other protocol is calibrated then."""
    protocols: tuple[str, ...] | None = None
    """Only these protocols are calibrated (all if None)."""
    shapes: tuple[int, ...] | None = None
    """Only these total shapes of shuffled noise are calibrated (a few between 1 and honest if None)."""
    title: str | None = None
    question: str | None = None

    def at_epsilon(self, epsilon: float) -> Setting:
        return replace(self, target=Target(epsilon, self.target.delta, self.target.distance, self.target.shape))

    def wants(self, protocol: str) -> bool:
        """Whether a protocol of that name may be a candidate."""
        return self.protocols is None or protocol in self.protocols


# What an option is where nobody chose it: then it is no matter whether it makes sense for the query.
DEFAULTS: dict[str, object] = {
    "encoding": "auto", "padding": "clamp", "granularity": None, "samples": None, "transport": "shuffler", "floor": True,
    "most_items": None, "spread": "any",
}  # fmt: skip


def validate_setting(
    query: Query,
    target: Target,
    users: int,
    honest: Honest = None,
    *,
    rounds: int = 1,
    trusted: Who = "shuffler",
    encoding: EncodingChoice = "auto",
    padding: Padding = "clamp",
    granularity: float | None = None,
    samples: int | None = None,
    transport: ShareTransport = "shuffler",
    max_local_epsilon: float | None = None,
    max_bits: int | None = None,
    floor: bool = True,
    most_items: int | None = None,
    spread: KindsOfPeople = "any",
    protocols: Sequence[str] | None = None,
    randomizer: Randomizer | None = None,
    title: str | None = None,
    question: str | None = None,
) -> Setting:
    """A setting whose parts fit together, or a sentence."""
    users = checked_users(users)
    if not isinstance(query, Query) or not isinstance(target, Target):
        raise InputError(
            "a plan needs a query (Sum, Mean, Centroid, Histogram, UserHistogram or UserLinearQuery) and a Target, got "
            f"{type(query).__name__} and {type(target).__name__}."
        )
    chosen = {
        "encoding": encoding, "padding": padding, "granularity": granularity, "samples": samples, "transport": transport, "floor": floor,
        "most_items": most_items, "spread": spread,
    }  # fmt: skip
    for name, value in chosen.items():
        if name not in query.options and value != DEFAULTS[name]:
            raise InputError(f"{name} makes no sense for a {query.kind}; leave it out.")
    words = {"encoding": EncodingChoice, "padding": Padding, "transport": ShareTransport, "spread": KindsOfPeople, "trusted": Who}
    for name, known in words.items():
        _validate_choice(name, {**chosen, "trusted": trusted}[name], get_args(known))
    if trusted == "aggregator" and "transport" in query.options:
        transport = "aggregator"
    query.check_distance(target.distance)
    _validate_integer("rounds", rounds)
    for name, value in (("samples", samples), ("most_items", most_items)):
        if value is not None:
            _validate_integer(name, value)
            if query.items != "any" or value > MAX_SAMPLES:
                raise InputError(f"{name} must be a whole number from 1 to 1e6, for users with any number of items, got {value!r}.")
    if not isinstance(floor, bool):
        raise InputError(f"floor must be True or False, got {floor!r}.")
    _check_limits(max_bits, max_local_epsilon, granularity)
    return Setting(
        query,
        target,
        users,
        honest_count(honest, users),
        rounds=rounds,
        trusted=trusted,
        encoding=encoding,
        padding=padding,
        granularity=query.default_granularity if granularity is None else granularity,
        samples=samples,
        transport=transport,
        max_local_epsilon=max_local_epsilon,
        max_bits=max_bits,
        floor=floor,
        most_items=most_items,
        spread=spread,
        protocols=_validate_protocols(protocols, randomizer),
        randomizer=randomizer,
        title=normalize_title(title),
        question=normalize_question(question),
    )


def _validate_protocols(protocols: Sequence[str] | None, randomizer: Randomizer | None) -> tuple[str, ...] | None:
    """Which protocols may be candidates; one's own randomizer is the only one."""
    if protocols is not None and (isinstance(protocols, str) or not isinstance(protocols, Sequence)):
        raise InputError(f"protocols must be a list of names, such as ['{protocols}'].")
    if randomizer is not None:
        if not isinstance(randomizer, Randomizer) or protocols is not None:
            raise InputError("randomizer must be a Randomizer (see metricshuffle.randomizers), and leaves nothing to choose for protocols.")
        return (OWN_RANDOMIZER,)
    return None if protocols is None else tuple(protocols)


def _check_limits(max_bits: int | None, max_local_epsilon: float | None, granularity: float | None) -> None:
    """Raise unless they are numbers that can be, where they are given."""
    if max_bits is not None:
        _validate_integer("max_bits", max_bits)
    if max_local_epsilon is not None and not (_is_number(max_local_epsilon) and 0.0 < max_local_epsilon < math.inf):
        raise InputError(f"max_local_epsilon must be a finite number > 0, got {max_local_epsilon!r}.")
    if granularity is not None and not (_is_number(granularity) and 0.0 < granularity < math.inf):
        raise InputError(f"granularity must be a finite number > 0, got {granularity!r}.")


def _validate_choice(name: str, value: object, words: tuple[str, ...]) -> None:
    if value not in words:
        raise InputError(f"{name} must be one of {', '.join(words)}, got {value!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _validate_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be a whole number >= 1, got {value!r}.")


def step_sentence(query: Query, distance: float, step: float) -> str:
    """What is wrong with a distance below one step."""
    return (
        f"distance {format_distance(distance)} is less than one step ({f'{format_number(step)} {query.unit}'.strip()}); "
        f"values closer than a step are the same value, so nothing would be promised."
    )

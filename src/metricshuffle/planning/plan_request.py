"""A validated request for a plan: a query, a target, the people, and limits on the candidates.

The arguments of `plan`, the options of `metricshuffle plan` and the fields of the page all become
such a request, so that they are validated in one place.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, PlainValidator, SkipValidation, StrictBool, model_validator

from metricshuffle.errors import InputError, argument, without_owner
from metricshuffle.models import FrozenModel
from metricshuffle.planning.query_words import number_text, python_code, query_options
from metricshuffle.planning.setting import (
    MAX_DUMMIES,
    OWN_RANDOMIZER,
    Draws,
    EncodingChoice,
    FloorRule,
    KindsOfPeople,
    Padding,
    Setting,
    ShareTransport,
)
from metricshuffle.privacy.guarantee import Who
from metricshuffle.privacy.target import Honest, Target, checked_users, honest_count
from metricshuffle.protocols.damage import Liars, damage_limit, liar_count
from metricshuffle.queries.query import Query
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.tasks.wording import normalize_question, normalize_title

MAX_DRAWS = 10**6
OLD_DRAW = "samples is now draw; the old name goes with the next version."
# Choices that only some queries have; for other queries they must keep their defaults.
QUERY_CHOICES = (
    "encoding",
    "padding",
    "granularity",
    "draw",
    "without_replacement",
    "transport",
    "floor",
    "most_items",
    "spread",
)


def _count(value: object) -> object:
    if value is None:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be a whole number >= 1, got {value!r}")
    return value


def _draws(value: object) -> object:
    try:
        return value if value == "auto" else _count(value)
    except ValueError:
        raise ValueError(f'must be a whole number >= 1 or "auto", got {value!r}') from None


def _positive(value: object) -> object:
    if value is None:
        return value
    if isinstance(value, bool) or not (isinstance(value, int | float) and 0.0 < value < math.inf):
        raise ValueError(f"must be a finite number > 0, got {value!r}")
    return value


def _error(value: object) -> object:
    try:
        return _positive(value)
    except ValueError:
        raise ValueError(
            f"must be a finite number > 0, in units of the query, got {value!r}"
        ) from None


def _names(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"must be a list of names, such as ['{value}']")
    return tuple(value)


def _floor_rule(value: object) -> object:
    """Convert True or False to a floor rule; return other values unchanged."""
    return {True: "always", False: "never"}[value] if isinstance(value, bool) else value


Count = Annotated[int, BeforeValidator(_count)]
OptionalCount = Annotated[int | None, BeforeValidator(_count)]
OptionalPositive = Annotated[float | None, BeforeValidator(_positive)]


class PlanRequest(FrozenModel):
    """Everything requested of a plan, validated, as it was written."""

    query: SkipValidation[Query]
    target: SkipValidation[Target]
    users: SkipValidation[int]
    honest: SkipValidation[Honest] = None
    error: Annotated[float | None, BeforeValidator(_error)] = None
    """Expected error that decides the epsilon; then the target's epsilon is ignored."""
    rounds: Count = 1
    trusted: Who = "shuffler"
    encoding: EncodingChoice = "auto"
    padding: Padding = "clamp"
    granularity: OptionalPositive = None
    draw: Annotated[Draws | None, BeforeValidator(_draws)] = None
    without_replacement: StrictBool = False
    transport: ShareTransport = "shuffler"
    max_local_epsilon: OptionalPositive = None
    max_bits: OptionalCount = None
    max_dummies: Count = MAX_DUMMIES
    max_damage: SkipValidation[float | None] = None
    liars: SkipValidation[Liars | None] = None
    """Number of liars whose joint damage `max_damage` limits; one if left out."""
    floor: Annotated[FloorRule, BeforeValidator(_floor_rule)] = "always"
    most_items: OptionalCount = None
    """Without effect: users may hold any number of items. It was needed by noisy vectors."""
    spread: KindsOfPeople = "any"
    protocols: Annotated[tuple[str, ...] | None, PlainValidator(_names)] = None
    randomizer: SkipValidation[Randomizer | None] = None
    title: SkipValidation[str | None] = None
    question: SkipValidation[str | None] = None

    def __init__(
        self, query: Query, target: Target, users: int, honest: Honest = None, **choices: Any
    ) -> None:
        if (samples := choices.pop("samples", None)) is not None:
            warnings.warn(OLD_DRAW, DeprecationWarning, stacklevel=3)
            choices["draw"] = samples
        if (limit := choices.get("max_damage")) is not None:
            choices["max_damage"] = damage_limit(limit, query)
        try:
            super().__init__(query=query, target=target, users=users, honest=honest, **choices)
        except InputError as error:  # callers do not know this class
            raise InputError(
                without_owner(error.problem), field=error.field, remedy=error.remedy
            ) from None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        query = self.query
        users = checked_users(self.users)
        if not isinstance(query, Query) or not isinstance(self.target, Target):
            raise InputError(
                "a plan needs a query (Sum, Mean, ByGroup, Centroid, Histogram, Flows, Quantiles, "
                "Spread, ShareAbove, Means, Sets, KeyValues, UserHistogram or UserLinearQuery) "
                f"and a Target, got {type(query).__name__} and {type(self.target).__name__}.",
                field="target" if isinstance(query, Query) else "query",
            )
        for name in QUERY_CHOICES:
            value = getattr(self, name)
            if name not in query.options and value != type(self).model_fields[name].default:
                raise InputError(
                    f"{argument(name)} does not apply to a {query.kind}", remedy="leave it out."
                )
        query.for_target(self.target)
        query.check_distance(self.target.distance)
        if self.most_items is not None and (query.items != "any" or self.most_items > MAX_DRAWS):
            raise InputError(
                f"{argument('most_items')} must be a whole number from 1 to 1e6, for users "
                f"with any number of items, got {self.most_items!r}."
            )
        self._check_draws()
        honest_count(self.honest, users)
        if self.liars is not None:
            liar_count(self.liars, users)
            if self.max_damage is None:
                raise InputError(
                    f"{argument('liars')} says how many lie when {argument('max_damage')} is kept.",
                    field="liars",
                    remedy=f"Give {argument('max_damage')}, or leave it out.",
                )
        has_both = self.randomizer is not None and self.protocols is not None
        if has_both or not isinstance(self.randomizer, Randomizer | None):
            raise InputError(
                f"{argument('randomizer')} must be a Randomizer (see metricshuffle.randomizers), "
                f"and cannot be combined with {argument('protocols')}."
            )
        normalize_title(self.title)
        normalize_question(self.question)
        return self

    def _check_draws(self) -> None:
        """Raise unless items can be drawn as requested."""
        items = self.query.items
        draw = None if self.draw == "auto" else self.draw
        if draw is not None and draw > MAX_DRAWS:
            raise InputError(
                f"{argument('draw')} must be a whole number from 1 to 1e6, got {draw!r}."
            )
        if not self.without_replacement:
            return
        if items == "any":
            raise InputError(
                f"{argument('without_replacement')} needs one public number of items that "
                "everybody holds: draws without replacement of unequal numbers can give away "
                "users whose shares are the same.",
                field="without_replacement",
                remedy=f"Give {argument('items')}, or leave it out to draw with replacement.",
            )
        if draw is None or (isinstance(items, int) and draw > items):
            raise InputError(
                f"{argument('without_replacement')} needs {argument('draw')}, a number of items "
                f"to draw, of at most the {items} that everybody holds, got {self.draw!r}.",
                field="draw",
                remedy=f"Give {argument('draw')} from 1 to {items}.",
            )

    @property
    def setting(self) -> Setting:
        """The setting to calibrate for; open choices are decided by the query and the people."""
        names = [field.name for field in fields(Setting) if field.name != "shapes"]
        resolved = {name: getattr(self, name) for name in names}
        resolved["query"] = self.query.for_target(self.target)
        resolved["honest"] = honest_count(self.honest, self.users)
        resolved["liars"] = 1 if self.liars is None else liar_count(self.liars, self.users)
        resolved["title"] = normalize_title(self.title)
        resolved["question"] = normalize_question(self.question)
        if self.granularity is None:
            resolved["granularity"] = self.query.default_granularity
        if self.trusted == "aggregator" and "transport" in self.query.options:
            resolved["transport"] = "aggregator"
        if self.randomizer is not None:
            resolved["protocols"] = (OWN_RANDOMIZER,)
        return Setting(**resolved)

    def changed(self, **changes: Any) -> PlanRequest:
        """Return the request with some fields changed."""
        return type(self)(**{**self._given(), **changes})

    def _given(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        return {
            name: value
            for name, value in values.items()
            if value != defaults[name] and name != "most_items"
        }

    def to_command(self) -> list[tuple[str, ...]]:
        """Return the equivalent options of `metricshuffle plan`, each with its values."""
        if self.randomizer is not None:
            raise InputError(
                "a custom randomizer can be given as an option only from a file.",
                field="randomizer",
                remedy="Save it with its method save.",
            )
        choices = self._given()
        target = choices.pop("target")
        del choices["query"]
        options = query_options(self.query)
        options["error" if self.error is not None else "epsilon"] = self.error or target.epsilon
        options |= {
            "distance": target.distance,
            "delta": target.delta,
            "flat": target.shape == "flat",
            "label_epsilon": target.label_epsilon,
        }
        options["protocol"] = choices.pop("protocols", None)
        words: list[tuple[str, ...]] = []
        for name, value in {**options, **choices}.items():
            option = f"--{name.replace('_', '-')}"
            if name == "protocol":
                words += [(option, protocol) for protocol in value or ()]
            elif name == "column" and isinstance(value, tuple):
                words += [(option, column) for column in value]
            elif isinstance(value, tuple):
                words.append((option, *map(number_text, value)))
            elif value is True:
                words.append((option,))
            elif value is not None and value is not False:
                words.append((option, value if isinstance(value, str) else number_text(value)))
        return words

    def to_python(self) -> str:
        """Return the expression that makes the same plan, with `metricshuffle` as `ms`."""
        choices = self._given()
        target = choices.pop("target")
        query = python_code(choices.pop("query"))
        if self.error is None:
            arguments = {
                "target": python_code(target),
                **{name: repr(value) for name, value in choices.items()},
            }
            lines = [f"{name}={value}," for name, value in arguments.items() if name != "target"]
            lines.insert(0, f"{arguments['target']},")
        else:
            promise = {name: getattr(target, name) for name in ("delta", "distance", "shape")}
            if target.label_epsilon is not None:
                promise["label_epsilon"] = target.label_epsilon
            lines = [
                f"{name}={value!r},"
                for name, value in {"error": self.error, **promise, **choices}.items()
            ]
        call = "ms.plan" if self.error is None else "ms.plan_for_error"
        return "\n".join([f"{call}(", f"    {query},", *(f"    {line}" for line in lines), ")"])

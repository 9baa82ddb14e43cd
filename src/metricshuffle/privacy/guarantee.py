"""Guarantee of a release: what it protects, at which epsilon and delta, and whom it trusts."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    computed_field,
    model_serializer,
    model_validator,
)

from metricshuffle.display import HtmlRepr, one_line_repr
from metricshuffle.errors import InputError, NotCertified, argument
from metricshuffle.models import OrInfinite
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon, round_up
from metricshuffle.privacy.profile import PrivacyProfile, Shape

Protects = Literal["one person", "people together", "one user's items"]
Who = Literal["nobody", "shuffler", "aggregator", "curator"]
Items = int | Literal["public", "any"]


def protects_no_less(true: Protects, claimed: Protects) -> bool:
    """Return whether protecting `true` implies protecting `claimed`.

    "people together" means any number of people, so it implies "one person".
    """
    return true == claimed or (true, claimed) == ("people together", "one person")


class Trust(BaseModel):
    """Parties that a guarantee relies on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trusted: Who
    honest_reports: int | None = None
    """Number of reports that must come from people who follow the protocol; None if irrelevant."""

    def __str__(self) -> str:
        if self.trusted == "nobody":
            return "even if everyone else, the shuffler included, colludes"
        if self.trusted == "curator":
            return "as long as the curator, who sees the raw values, is honest"
        counted = (
            ""
            if self.honest_reports is None
            else f" and at least {self.honest_reports:,} reports come from honest people"
        )
        return f"as long as the {self.trusted} is honest{counted}"


class Guarantee(HtmlRepr, BaseModel):
    """Certified privacy statement; see `docs/guarantee.md` for what it does not cover.

    `epsilon` is the total at `distance`. shape "linear": two inputs at distance d <= distance are
    (epsilon * d / distance, delta)-indistinguishable. shape "flat": (epsilon, delta) for every d <=
    distance.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epsilon: OrInfinite
    delta: float
    distance: float
    unit: str
    shape: Shape
    protects: Protects
    trust: Trust
    bound: str
    rounds: int = 1
    between: str = "values"
    """What the distance is measured between: "values", or "cells" of a grid that points snap to."""
    items: Items | None = None
    """Number of items of a user, if the guarantee protects one user's items.

    "any": their number is protected too (unbounded). An integer, or "public" if it differs between
    users: the number is public and does not change (bounded). None states neither.
    """

    @model_validator(mode="after")
    def _numbers_make_sense(self) -> Self:
        if self.items is not None and (
            self.protects != "one user's items" or (isinstance(self.items, int) and self.items < 1)
        ):
            raise InputError(
                f"{argument('items')} is for guarantees that protect one user's items, of "
                f"which there is at least 1; got {self.items!r}"
            )
        if not (
            self.epsilon >= 0.0
            and 0.0 <= self.delta <= 1.0
            and 0.0 <= self.distance < math.inf
            and self.rounds >= 1
        ):
            raise InputError(
                "a guarantee needs epsilon >= 0, delta in [0, 1], a finite distance and "
                "rounds >= 1; "
                f"got {argument('epsilon', self.epsilon)}, {argument('delta', self.delta)}, "
                f"{argument('distance', self.distance)}, {argument('rounds', self.rounds)}"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _without_sentence(cls, data: object) -> Any:
        # The sentence is for readers of the JSON; it is rebuilt from the numbers when read back.
        return (
            {key: value for key, value in data.items() if key != "sentence"}
            if isinstance(data, dict)
            else data
        )

    @model_serializer(mode="wrap")
    def _only_what_is_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Plans older than `items` contain a digest of this dictionary without it.
        written: dict[str, Any] = handler(self)
        if self.items is None:
            written.pop("items", None)
        return written

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sentence(self) -> str:
        return str(self)

    @classmethod
    def from_profile(
        cls,
        profile: PrivacyProfile,
        *,
        delta: float,
        distance: float,
        unit: str,
        protects: Protects,
        trust: Trust,
        rounds: int = 1,
        between: str = "values",
        step: float = 1.0,
        items: Items | None = None,
    ) -> Self:
        """Return the flat guarantee that a profile gives at one distance.

        `step` is the length of one step of the profile, in units; a distance that is a whole number
        of steps up to rounding (0.3 units of 0.1) counts as that many. Only an upper bound can
        become a guarantee: published formulas and lower bounds are other types and are rejected.
        """
        if not isinstance(profile, PrivacyProfile):
            raise NotCertified(
                "a guarantee needs a PrivacyProfile (an upper bound), got "
                f"{type(profile).__name__}."
            )
        steps = distance if step == 1.0 else distance / step * (1.0 + 1e-12)
        return cls(
            epsilon=profile.epsilon(delta, steps),
            delta=delta,
            distance=distance,
            unit=unit,
            shape="flat",
            protects=protects,
            trust=trust,
            bound=profile.bound,
            rounds=rounds,
            between=between,
            items=items,
        )

    def __repr__(self) -> str:
        names = ("epsilon", "delta", "distance", "unit", "shape", "protects", "rounds", "bound")
        return one_line_repr(
            "Guarantee",
            (("trusted", self.trust.trusted), *((name, getattr(self, name)) for name in names)),
        )

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        distance_text = f"{format_distance(self.distance)}{unit}"
        how = "" if self.between == "values" else f" (distance between {self.between})"
        measured_text = f"{distance_text}{how}"
        users = {
            None: "items",
            "any": "items (any number of them)",
            "public": "items (their number is public)",
        }
        plural = "items" if self.items != 1 else "item"
        items_text = (
            f"{self.items:,} {plural} (their number is public)"
            if isinstance(self.items, int)
            else users[self.items]
        )
        movers = {
            "one person": f"one person's value moving by up to {measured_text}",
            "people together": (
                f"values moving by up to {measured_text} in total, over any number of people,"
            ),
            "one user's items": (
                f"one user's {items_text} moving by up to {distance_text} of earth mover's "
                f"distance{how}"
            ),
        }[self.protects]
        relied = str(self.trust)
        if self.protects == "one user's items":
            relied = relied.replace("reports come from honest people", "users are honest").replace(
                "raw values", "raw items"
            )
        if not math.isfinite(self.epsilon):
            seen = self.bound.startswith("raw ")  # then no trust assumption applies
            return f"NOT hidden: {movers}{'' if seen else f' {relied}'} (bound: {self.bound})."
        scaled = "" if self.shape == "flat" else ", and proportionally less for a smaller move"
        probability = "with certainty" if self.delta == 0 else f"delta {format_delta(self.delta)}"
        over = "" if self.rounds == 1 else f", over all {self.rounds} rounds together"
        return (
            f"Hidden at epsilon {format_epsilon(self.epsilon)}{scaled} ({probability}{over}): "
            f"{movers} {relied} (bound: {self.bound})."
        )


def likelihood_text(epsilon: float, delta: float) -> str:
    """Describe what (epsilon, delta) implies for the probability of any observation.

    It does not imply that a loss above epsilon has probability at most delta.
    """
    factor = (
        format_epsilon(round_up(math.exp(epsilon), 8))
        if epsilon < 700.0
        else f"e^{format_epsilon(epsilon)}"
    )
    chance = "" if delta == 0.0 else f", plus a probability of {format_delta(delta)}"
    return f"at most {factor} times as likely with one as with the other{chance}"


def released_sentences(
    guarantee: Guarantee,
    fallback: Guarantee,
    *,
    caveat: str = "",
    raw_values_seen: bool,
    unsafe_seeded: bool,
) -> list[str]:
    """Return the sentences below every published number: both guarantees, and what voids them.

    `caveat` is what the fallback's epsilon does not say.
    """
    trusted = guarantee.trust.trusted
    lines = (
        [str(guarantee)]
        if trusted == "nobody"
        else [f"If the {trusted} is honest: {guarantee}", f"If it is not: {fallback}"]
    )
    lines += [caveat] if caveat else []
    if raw_values_seen:
        lines.append("All roles ran on one machine: whoever ran it saw the raw values.")
    if unsafe_seeded:
        lines.append("UNSAFE: seeded randomness was used; this is a simulation, not a release.")
    return lines


def check_claim(claimed: Guarantee, true: Guarantee, more: bool) -> None:
    """Raise if the claim is stronger than, or differs in kind from, the computed guarantee."""
    fields = ("trust", "rounds", "unit", "between", "items", "bound")
    differ = [name for name in fields if getattr(claimed, name) != getattr(true, name)]
    if claimed.distance > true.distance or claimed.shape != true.shape:
        differ.append("distance")
    if more or not protects_no_less(true.protects, claimed.protects) or differ:
        about = f" ({', '.join(differ)})" if differ else ""
        raise NotCertified(
            f"this task claims more than is true{about}. It says: {claimed} True is: {true}"
        )

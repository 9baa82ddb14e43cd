"""What a release promises, to whom, and assuming what."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, computed_field, model_serializer, model_validator

from metricshuffle.display import HtmlRepr, one_line_repr
from metricshuffle.errors import NotCertified
from metricshuffle.models import OrInfinite
from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon, round_up
from metricshuffle.privacy.profile import PrivacyProfile, Shape

Protects = Literal["one person", "people together", "one user's items"]
Who = Literal["nobody", "shuffler", "aggregator", "curator"]
Items = int | Literal["public", "any"]


def protects_no_less(true: Protects, claimed: Protects) -> bool:
    """Whether what is true of `true` is true of `claimed`: any number of people may be one."""
    return true == claimed or (true, claimed) == ("people together", "one person")


class Trust(BaseModel):
    """Whom the guarantee relies on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trusted: Who
    honest_reports: int | None = None
    """How many reports must come from people who follow the protocol; None if it does not matter."""

    def __str__(self) -> str:
        if self.trusted == "nobody":
            return "even if everyone else, the shuffler included, colludes"
        if self.trusted == "curator":
            return "as long as the curator, who sees the raw values, is honest"
        counted = "" if self.honest_reports is None else f" and at least {self.honest_reports:,} reports come from honest people"
        return f"as long as the {self.trusted} is honest{counted}"


class Guarantee(HtmlRepr, BaseModel):
    """One sentence with numbers; see `docs/guarantee.md` for what it does not promise.

    `epsilon` is the total at `distance`. shape "linear": two inputs at distance d <= distance
    are (epsilon * d / distance, delta)-indistinguishable. shape "flat": (epsilon, delta) for
    every d <= distance.
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
    """What the distance is measured between: "values", or "cells" when points are snapped to a grid first."""
    items: Items | None = None
    """For one user's items: "any" number of them, which is hidden too (unbounded), or a number that is public and stays
    the same (bounded): that number, or "public" when it differs from user to user. None says neither."""

    @model_validator(mode="after")
    def _numbers_make_sense(self) -> Self:
        if self.items is not None and (self.protects != "one user's items" or (isinstance(self.items, int) and self.items < 1)):
            raise ValueError(f"items is for guarantees that protect one user's items, of which there is at least 1; got {self.items!r}")
        if not (self.epsilon >= 0.0 and 0.0 <= self.delta <= 1.0 and 0.0 <= self.distance < math.inf and self.rounds >= 1):
            raise ValueError(
                f"a guarantee needs epsilon >= 0, delta in [0, 1], a finite distance and rounds >= 1; "
                f"got epsilon={self.epsilon}, delta={self.delta}, distance={self.distance}, rounds={self.rounds}"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _without_sentence(cls, data: Any) -> Any:
        # The sentence is written for readers of the JSON; it is made anew from the numbers when read back.
        return {key: value for key, value in data.items() if key != "sentence"} if isinstance(data, dict) else data

    @model_serializer(mode="wrap")
    def _only_what_is_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Plans written before there were items carry a digest of this dictionary.
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
        cls, profile: PrivacyProfile, *, delta: float, distance: float, unit: str, protects: Protects, trust: Trust,
        rounds: int = 1, between: str = "values", step: float = 1.0, items: Items | None = None,
    ) -> Self:  # fmt: skip
        """The flat guarantee a profile gives at one distance; `step` units make one step of the profile.

        Only an upper bound can become a guarantee: published formulas and lower bounds are
        other types and are refused here. A distance that is a whole number of steps up to rounding
        (0.3 units of 0.1) counts as that many steps.
        """
        if not isinstance(profile, PrivacyProfile):
            raise NotCertified(f"a guarantee needs a PrivacyProfile (an upper bound), got {type(profile).__name__}.")
        steps = distance if step == 1.0 else distance / step * (1.0 + 1e-12)
        return cls(
            epsilon=profile.epsilon(delta, steps), delta=delta, distance=distance, unit=unit, shape="flat",
            protects=protects, trust=trust, bound=profile.bound, rounds=rounds, between=between, items=items,
        )  # fmt: skip

    def __repr__(self) -> str:
        names = ("epsilon", "delta", "distance", "unit", "shape", "protects", "rounds", "bound")
        return one_line_repr("Guarantee", (("trusted", self.trust.trusted), *((name, getattr(self, name)) for name in names)))

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        distance_text = f"{format_distance(self.distance)}{unit}"
        how = "" if self.between == "values" else f" (distance between {self.between})"
        measured_text = f"{distance_text}{how}"
        users = {None: "items", "any": "items (any number of them)", "public": "items (their number is public)"}
        plural = "items" if self.items != 1 else "item"
        items_text = f"{self.items:,} {plural} (their number is public)" if isinstance(self.items, int) else users[self.items]
        movers = {
            "one person": f"one person's value moving by up to {measured_text}",
            "people together": f"values moving by up to {measured_text} in total, over any number of people,",
            "one user's items": f"one user's {items_text} moving by up to {distance_text} of earth mover's distance{how}",
        }[self.protects]
        relied = str(self.trust)
        if self.protects == "one user's items":
            relied = relied.replace("reports come from honest people", "users are honest").replace("raw values", "raw items")
        if not math.isfinite(self.epsilon):
            seen = self.bound.startswith("raw ")  # then nothing is left to rely on
            return f"NOT hidden: {movers}{'' if seen else f' {relied}'} (bound: {self.bound})."
        scaled = "" if self.shape == "flat" else ", and proportionally less for a smaller move"
        probability = "with certainty" if self.delta == 0 else f"delta {format_delta(self.delta)}"
        over = "" if self.rounds == 1 else f", over all {self.rounds} rounds together"
        return f"Hidden at epsilon {format_epsilon(self.epsilon)}{scaled} ({probability}{over}): {movers} {relied} (bound: {self.bound})."


def likelihood_text(epsilon: float, delta: float) -> str:
    """What (epsilon, delta) says of anything that may be seen, and no more: not that a loss above epsilon has probability delta at most."""
    factor = format_epsilon(round_up(math.exp(epsilon), 8)) if epsilon < 700.0 else f"e^{format_epsilon(epsilon)}"
    chance = "" if delta == 0.0 else f", plus a probability of {format_delta(delta)}"
    return f"at most {factor} times as likely with one as with the other{chance}"


def released_sentences(guarantee: Guarantee, fallback: Guarantee, *, raw_values_seen: bool, unsafe_seeded: bool) -> list[str]:
    """What stands below every published number: both promises, and what spoils them."""
    trusted = guarantee.trust.trusted
    lines = [str(guarantee)] if trusted == "nobody" else [f"If the {trusted} is honest: {guarantee}", f"If it is not: {fallback}"]
    if raw_values_seen:
        lines.append("All roles ran on one machine: whoever ran it saw the raw values.")
    if unsafe_seeded:
        lines.append("UNSAFE: seeded randomness was used; this is a simulation, not a release.")
    return lines

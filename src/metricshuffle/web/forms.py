"""From the words of a form to a plan: the same query, target and choices that the options of the command line stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import cos, radians
from re import sub
from typing import TYPE_CHECKING, Any

from metricshuffle.errors import MetricShuffleError
from metricshuffle.web.form_fields import MAX_TEXT_LENGTH, FieldErrors, FormReader, field_of_error
from metricshuffle.web.question_cards import PLAN_CARDS, QuestionCard
from metricshuffle.web.wording_fields import read_wording

if TYPE_CHECKING:
    from metricshuffle.planning import Plan
    from metricshuffle.planning.advice import Wishes
    from metricshuffle.queries.query import Query

CARDS = {card.name: card for card in PLAN_CARDS}
SUMS = ("mean", "sum", "centroid")
# What Python calls the field that a sentence is about; the first that the card has.
FIELD_ALIASES = {
    "domain": ("low",), "bins": ("step",), "corner": ("south",), "box": ("south",), "label": ("labels",),
    "values": ("step", "cell", "high"), "cells": ("cell",),
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A row of the table of candidates, as the address of the page names it."""

    protocol: str
    encoding: str = ""
    trusted: str = ""
    shape: str = ""

    @classmethod
    def of(cls, text: str) -> Choice | None:
        parts = text.split("~")
        return cls(*parts[:4]) if parts[0] else None

    def __str__(self) -> str:
        return "~".join((self.protocol, self.encoding, self.trusted, self.shape))


@dataclass(frozen=True)
class PlanForm:
    """A question that can be planned. `options` are those of `metricshuffle plan`, in words, and `python` is the query as code."""

    query: Query
    options: tuple[tuple[str, str], ...]
    python: str
    first: str
    epsilon: float
    error: float
    distance: float
    delta: float
    users: int
    honest: str
    flat: bool
    choices: dict[str, Any]
    choice: Choice | None

    def plan(self) -> Plan:
        """The whole comparison, whatever was chosen from it."""
        from metricshuffle.planning import plan, plan_for_error
        from metricshuffle.privacy.profile import Shape
        from metricshuffle.privacy.target import Target

        shape: Shape = "flat" if self.flat else "linear"
        if self.first == "accuracy":
            return plan_for_error(
                self.query, self.error, self.delta, self.distance, self.users, self.honest, shape=shape, **self.choices
            )  # fmt: skip
        target = Target(self.epsilon, self.delta, self.distance, shape)
        return plan(self.query, target, self.users, self.honest, **self.choices)

    def narrowed(self, **choices: Any) -> PlanForm:
        """The same with other limits on what may be chosen, none of which is left to the table."""
        return replace(self, choices={**self.choices, **choices}, choice=None)

    @property
    def wishes(self) -> Wishes:
        from metricshuffle.planning.advice import Wishes

        return Wishes(self.honest, self.choices["max_local_epsilon"], self.choices["max_bits"], narrowed="protocols" in self.choices)


def asked(card_name: str, typed: Mapping[str, str]) -> PlanForm:
    """What a filled form asks for; `FieldErrors` says what is wrong, beside the field."""
    card = CARDS.get(card_name)
    if card is None:
        raise FieldErrors({"": f"there is no question {card_name!r}; choose one of the cards."})
    words = FormReader(card.fields, card.filled(typed))
    try:
        query, options, python = _QUERY_READERS[card.name](words)
        return _plan_form(card, words, query, options, python)
    except MetricShuffleError as error:
        if isinstance(error, FieldErrors):
            raise
        raise field_errors_of(card, error) from None


def field_errors_of(card: QuestionCard, error: Exception) -> FieldErrors:
    """A sentence from below, beside the field that it is about."""
    message = _without_class_names(error)
    also = {word: next((name for name in names if name in card.fields), "") for word, names in FIELD_ALIASES.items()}
    name = field_of_error(message, card.fields.values(), also)
    for field in card.fields.values():
        if "_" in field.name:
            message = message.replace(field.name, field.label.lower())
        elif field.kind not in ("check", "hidden", "choice"):  # a sentence about a field begins with its name, here its label
            message = sub(rf"^{field.name}(?= (?:must|is|and|has) )", field.label, message)
    messages = {name: _sentence(message)}
    if name == "distance" and "cell" in card.fields and "step" in message:  # two that do not fit; nobody knows which was meant otherwise
        messages["cell"] = "Side of a square does not fit “Distance”; it is said there."
    return FieldErrors(messages)


def _without_class_names(error: Exception) -> str:
    """Without the name of the class that refused it."""
    return sub(r"^(?:[A-Z][A-Za-z0-9]*: )+", "", str(error))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _plan_form(card: QuestionCard, words: FormReader, query: Query, options: list[tuple[str, str]], python: str) -> PlanForm:
    first = words.choice("first")
    epsilon = words.number("epsilon") if first == "privacy" else 1.0
    error = words.number("error") if first == "accuracy" else 1.0
    distance = words.number("distance") if "distance" in card.fields else 1.0
    delta, users, honest = words.number("delta"), words.whole("users"), words.number("honest")
    rounds, trusted = words.whole("rounds"), words.choice("trusted")
    cap, bits = words.number("max_local_epsilon"), words.whole("max_bits")
    if honest is not None and not 0.0 < honest <= 100.0:
        words.refuse("honest", f"is a share between 0 and 100 %, got {words.text('honest')}.")
    for name, value in (("users", users), ("rounds", rounds), ("max_bits", bits)):
        if value is not None and value < 1:
            words.refuse(name, f"must be a whole number of at least 1, got {words.text(name)}.")
    for name, amount in (("epsilon", epsilon), ("error", error), ("distance", distance), ("max_local_epsilon", cap)):
        if amount is not None and not amount > 0.0:
            words.refuse(name, f"must be greater than 0, got {words.text(name)}.")
    if delta is not None and not 0.0 <= delta < 1.0:
        words.refuse("delta", f"must lie in [0, 1), got {words.text('delta')}.")
    words.checked()
    choices: dict[str, Any] = {"rounds": rounds, "trusted": trusted, "max_local_epsilon": cap, "max_bits": bits}
    if query.kind in ("mean", "sum") and card.name == "number":
        choices |= {"encoding": words.choice("encoding"), "granularity": words.number("granularity")}
        options.append(("--encoding", choices["encoding"]))
    if card.name == "items" and words.choice("question") == "histogram":  # a mean has no such limit, and its form does not show it
        choices["most_items"] = max_items = words.whole("most_items")
        if max_items is not None and max_items < 1:
            words.refuse("most_items", f"must be a whole number of at least 1, got {words.text('most_items')}.")
    words.checked()
    promise = [("--epsilon", words.text("epsilon"))] if first == "privacy" else [("--error", words.text("error"))]
    distance_options = [("--distance", words.text("distance"))] if "distance" in card.fields else []
    options += [
        *promise,
        *distance_options,
        ("--delta", words.text("delta")),
        ("--users", words.text("users")),
        ("--honest", f"{words.text('honest')}%"),
    ]
    options += [("--rounds", str(rounds))] if rounds != 1 else []
    options += [("--trusted", trusted)] if trusted != "shuffler" else []
    options += [(name, words.text(field)) for name, field in (("--max-local-epsilon", "max_local_epsilon"), ("--max-bits", "max_bits"))
                if words.text(field)]  # fmt: skip
    wording = read_wording(words.typed, {"title": "title", "question": "asking"})
    choices |= wording
    options += [(f"--{name}", text) for name, text in wording.items() if text is not None]
    options += [("--most-items", words.text("most_items"))] if choices.get("most_items") else []
    flat = words.is_checked("flat")
    options += [("--flat", "")] if flat else []
    query.check_distance(distance or 0.0)
    return PlanForm(
        query, tuple(options), python, first, epsilon or 0.0, error or 0.0, distance or 0.0, delta or 0.0, users or 0,
        f"{words.text('honest')}%", flat, choices, Choice.of(words.text("choice")),
    )  # fmt: skip


QueryParts = tuple["Query", list[tuple[str, str]], str]


def _number_query(words: FormReader) -> QueryParts:
    from metricshuffle.queries import Histogram, Mean, Sum
    from metricshuffle.spaces import Integers, Interval

    question = words.choice("question")
    low, high, unit = words.bound("low"), words.bound("high"), words.unit()
    granularity = words.number("granularity") if question != "histogram" else None
    step = words.number("step") if question == "histogram" else None
    words.ordered("low", "high", low, high)
    finer = granularity is not None and 0.0 < granularity < 1.0  # no whole number needs that: real ones were meant
    whole = isinstance(low, int) and isinstance(high, int) and not finer
    if low is not None and high is not None and not whole and question != "histogram" and granularity is None:
        words.refuse("granularity", "is empty; real numbers need it: the step they are rounded to.")
    words.checked()
    assert low is not None and high is not None  # noqa: S101, PT018 - else it was refused
    domain = Integers(int(low), int(high), unit) if whole else Interval(low, high, unit)
    named = "" if not unit else f", unit={unit!r}"
    python = f"ms.{'Integers' if whole else 'Interval'}({low!r}, {high!r}{named})"
    options = [("--query", question), ("--low", words.text("low")), ("--high", words.text("high"))]
    options += [("--unit", unit)] if unit else []
    if question == "histogram":
        return Histogram(domain, step), [*options, ("--step", words.text("step"))], f"ms.Histogram({python}, {step!r})"
    options += [("--granularity", words.text("granularity"))] if granularity is not None else []
    return (Sum if question == "sum" else Mean)(domain), options, f"ms.{question.capitalize()}({python})"


def _place_query(words: FormReader) -> QueryParts:
    from metricshuffle.queries import Centroid, Histogram
    from metricshuffle.spaces import Grid, Places

    question, where, unit = words.choice("question"), words.choice("where"), words.unit()
    as_places = question == "centroid" and where == "box"  # they are not counted by cells
    cell = None if as_places else words.number("cell")
    if where == "grid":
        width, height = words.whole("width"), words.whole("height")
        words.checked()
        grid = Grid(width or 0, height or 0, cell or 0.0, unit)
        sides = [("--width", words.text("width")), ("--height", words.text("height"))]
        python = f"ms.Grid({width}, {height}, {cell!r}, {unit!r})"
    else:
        names = ("south", "west", "north", "east")
        corners = [words.number(name) for name in names]
        for name, corner, limit in zip(names, corners, (85, 180, 85, 180), strict=True):
            if corner is not None and not abs(corner) <= limit:
                words.refuse(name, f"must lie within +-{limit} degrees, got {words.text(name)}.")
        words.ordered("south", "north", corners[0], corners[2])
        words.ordered("west", "east", corners[1], corners[3])
        words.checked()
        south, west, north, east = (corner or 0.0 for corner in corners)
        box = ("--box", " ".join(words.text(name) for name in names))
        if as_places:
            python = f"ms.Places({south!r}, {west!r}, {north!r}, {east!r}, {unit or 'm'!r})"
            places = Places(south, west, north, east, unit or "m")
            return Centroid(places), [("--query", question), box, *([("--unit", unit)] if unit else [])], f"ms.Centroid({python})"
        try:
            grid = Grid.from_box(south, west, north, east, cell or 0.0, unit or "m")
        except MetricShuffleError as error:
            if "the box (" not in str(error):
                raise
            tall = north - south > (east - west) * cos(radians(south))  # which of the sides are too far apart
            raise FieldErrors(
                dict.fromkeys(("south", "north") if tall else ("west", "east"), _sentence(_without_class_names(error)))
            ) from None
        sides = [box]
        python = f"ms.Grid.from_box({south!r}, {west!r}, {north!r}, {east!r}, {cell!r}, {unit or 'm'!r})"
    options = [("--query", question), *sides, ("--cell", words.text("cell")), *([("--unit", unit)] if unit else [])]
    if question == "centroid":
        return Centroid(grid), options, f"ms.Centroid({python})"
    return Histogram(grid), options, f"ms.Histogram({python})"


def _labels(words: FormReader) -> list[str]:
    text = words.text("labels")
    labels = [label.strip() for label in text.replace("\n", ",").split(",")]
    if not text:
        words.refuse("labels", "is empty; give at least two, with a comma between them, like tea, coffee.")
    elif len(text) > MAX_TEXT_LENGTH:
        words.refuse("labels", f"is longer than {MAX_TEXT_LENGTH:,} characters.")
    elif "" in labels:
        words.refuse("labels", "has an empty one; write them with one comma between, like tea, coffee.")
    elif len(labels) < 2:
        words.refuse("labels", f"names {len(labels)}; at least two are needed.")
    elif len(set(labels)) < len(labels):
        words.refuse("labels", "names one of them twice.")
    words.checked()
    return labels


def _category_query(words: FormReader) -> QueryParts:
    from metricshuffle.queries import Histogram
    from metricshuffle.spaces import Categories

    labels = _labels(words)
    return (
        Histogram(Categories(labels)),
        [("--query", "histogram"), ("--labels", ",".join(labels))],
        f"ms.Histogram(ms.Categories({labels!r}))",
    )


def _items_query(words: FormReader) -> QueryParts:
    from metricshuffle.queries import UserHistogram, UserLinearQuery
    from metricshuffle.spaces import Categories, Integers, Space, nested_squares, users_of

    question, item, unit, items = words.choice("question"), words.choice("item"), words.unit(), words.whole("items")
    if items is not None and items < 1:
        words.refuse("items", f"must be a whole number of at least 1, got {words.text('items')}.")
    options = [("--query", f"user-{question}")]
    if item == "number":
        low, high = words.whole("low"), words.whole("high")
        words.ordered("low", "high", low, high)
        words.checked()
        space, python = Space(Integers(low or 0, high or 0, unit)), f"ms.Space(ms.Integers({low}, {high}, unit={unit!r}))"
        options += [("--low", words.text("low")), ("--high", words.text("high"))]
    elif item == "label":
        if question == "mean":
            words.refuse("item", "of a mean is a number or a place; words have no mean.")
        labels = _labels(words)
        space, python = Space(Categories(labels), unit=unit), f"ms.Space(ms.Categories({labels!r}), unit={unit!r})"
        options.append(("--labels", ",".join(labels)))
    else:
        levels, side = words.whole("levels"), words.number("side")
        words.checked()
        space, python = nested_squares(levels or 0, side or 0.0, unit), f"ms.nested_squares({levels}, {side!r}, {unit!r})"
        options += [("--levels", words.text("levels")), ("--side", words.text("side"))]
    words.checked()
    options += [("--unit", unit)] if unit else []
    options += [("--items", str(items))] if items is not None else []
    people, items_argument = users_of(space, items), "" if items is None else f", {items}"
    users = f"ms.users_of({python}{items_argument})"
    if question == "mean":
        return UserLinearQuery.average(people), options, f"ms.UserLinearQuery.average({users})"
    return UserHistogram(people), options, f"ms.UserHistogram({users})"


_QUERY_READERS = {"number": _number_query, "place": _place_query, "category": _category_query, "items": _items_query}

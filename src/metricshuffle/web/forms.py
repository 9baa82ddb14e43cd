"""Conversion of a submitted form to the plan request that the same options of `plan` make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metricshuffle.errors import MetricShuffleError, argument
from metricshuffle.web.card_fields import QuestionCard
from metricshuffle.web.form_fields import (
    MAX_TABLE_LENGTH,
    MAX_TEXT_LENGTH,
    FieldErrors,
    FormReader,
    page_text,
)
from metricshuffle.web.question_cards import PLAN_CARDS
from metricshuffle.web.wording_fields import read_wording

if TYPE_CHECKING:
    from metricshuffle.data.point_tables import ItemFunction, PointTable
    from metricshuffle.planning.plan_request import PlanRequest
    from metricshuffle.queries.query import Query
    from metricshuffle.spaces import Users

CARDS = {card.name: card for card in PLAN_CARDS}
# Fields that show an error about a field that the form lacks; for a box, both ends show it.
OTHER_FIELDS = {
    "domain": ("low",),
    "step": ("cell", "high"),
    "south": ("south", "north"),
    "north": ("south", "north"),
    "west": ("west", "east"),
    "east": ("west", "east"),
}
FIELDS_OF_BINS = {
    "histogram": {"step": "step"},
    "quantiles": {"step": "bin", "at": "at", "edges": "edges"},
    "spread": {"step": "bin"},
    "share-above": {"step": "bin", "at": "thresholds", "fade": "fade"},
}
"""Fields that describe how the numbers of a question are counted, by the option they set."""


@dataclass(frozen=True)
class Choice:
    """A row of the table of candidates, as it is written in the address of the page."""

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
    """The plan request of a form, and the candidate that was chosen from the table."""

    request: PlanRequest
    choice: Choice | None


def asked(card_name: str, typed: Mapping[str, str]) -> PlanForm:
    """Read a filled form; `FieldErrors` has a sentence for each field with an error."""
    card = CARDS.get(card_name)
    if card is None:
        raise FieldErrors({"": f"there is no question {card_name!r}; choose one of the cards."})
    words = FormReader(card.fields, card.filled(typed))
    try:
        return _plan_form(card, words, _QUERY_READERS[card.name](words))
    except FieldErrors:
        raise
    except MetricShuffleError as error:
        raise field_errors_of(card, error) from None


def field_errors_of(card: QuestionCard, error: MetricShuffleError) -> FieldErrors:
    """Assign an error to the field that it is about."""
    text = page_text(error, card.fields)
    name = error.field or ""
    if name in ("south", "north", "west", "east") and name in card.fields:
        return FieldErrors(dict.fromkeys(OTHER_FIELDS[name], text))
    if name not in card.fields:
        name = next((other for other in OTHER_FIELDS.get(name, ()) if other in card.fields), "")
    messages = {name: text}
    # Either of the two fields may be the mistake.
    if name == "distance" and "cell" in card.fields and "step" in text:
        messages["cell"] = "Side of a square does not fit “Distance”; see the message there."
    return FieldErrors(messages)


def _plan_form(card: QuestionCard, words: FormReader, query: Query) -> PlanForm:
    from metricshuffle.planning.plan_request import PlanRequest
    from metricshuffle.privacy.target import Target

    first = words.choice("first")
    epsilon = words.number("epsilon") if first == "privacy" else 1.0
    error = words.number("error") if first == "accuracy" else None
    distance = words.number("distance") if "distance" in card.fields else 1.0
    delta = words.number("delta")
    users = words.whole("users")
    honest = words.number("honest")
    choices: dict[str, Any] = {
        "rounds": words.whole("rounds"),
        "trusted": words.choice("trusted"),
        "max_local_epsilon": words.number("max_local_epsilon"),
        "max_bits": words.whole("max_bits"),
        "max_damage": words.text("max_damage") or None,
        "liars": words.text("liars") or None,
    }
    if query.kind in ("mean", "sum"):
        choices |= {
            "encoding": words.choice("encoding"),
            "granularity": words.number("granularity"),
        }
    if "floor" in query.options:
        choices["floor"] = words.choice("floor")
    label_epsilon = words.number("label_epsilon") if query.kind == "by-group" else None
    if honest is not None and not 0.0 < honest <= 100.0:
        words.refuse("honest", f"is a share between 0 and 100 %, got {words.text('honest')}.")
    words.checked()
    choices |= read_wording(words.typed, {"title": "title", "question": "asking"})
    target = Target(
        epsilon or 0.0,
        delta or 0.0,
        distance or 0.0,
        "flat" if words.is_checked("flat") else "linear",
        label_epsilon,
    )
    request = PlanRequest(
        query, target, users or 0, f"{words.text('honest')}%", error=error, **choices
    )
    return PlanForm(request, Choice.of(words.text("choice")))


def _number_query(words: FormReader) -> Query:
    from metricshuffle.planning.query_words import QueryWords

    question = words.choice("question")
    low = words.bound("low")
    high = words.bound("high")
    granularity = words.number("granularity") if question in ("mean", "sum") else None
    fields_of = FIELDS_OF_BINS.get(question, {})
    at = words.numbers(fields_of["at"]) if "at" in fields_of else None
    step = words.number(fields_of["step"]) if "step" in fields_of else None
    fade = words.number(fields_of["fade"]) if "fade" in fields_of else None
    edges = words.numbers(fields_of["edges"]) if "edges" in fields_of else None
    unit = words.unit()
    words.ordered("low", "high", low, high)
    if question == "by-group":
        groups = QueryWords(
            low=low, high=high, unit=unit, labels=_labels(words), by=words.text("by") or "group"
        )
        return groups.query("mean", granularity=granularity)
    words.checked()
    try:
        numbers = QueryWords(
            low=low, high=high, unit=unit, step=step, at=at, fade=fade, edges=edges
        )
        return numbers.query(question, granularity=granularity)
    except MetricShuffleError as error:
        if error.field not in fields_of:
            raise
        fields = {**words.fields, **{name: words.fields[at] for name, at in fields_of.items()}}
        raise FieldErrors({fields_of[error.field]: page_text(error, fields)}) from None


def _place_query(words: FormReader) -> Query:
    from metricshuffle.planning.query_words import QueryWords

    question = words.choice("question")
    where = words.choice("where")
    if question in ("zones", "flows"):
        return _zone_query(words, question, where)
    if where == "grid":
        place: dict[str, Any] = {name: words.whole(name) for name in ("width", "height")}
    else:
        place = {"box": tuple(words.number(name) for name in ("south", "west", "north", "east"))}
    if question == "map" or where == "grid":  # the centroid of a box needs no cells
        place["cell"] = words.number("cell")
    unit = words.unit()
    words.checked()
    return QueryWords(unit=unit, **place).query(question)


def _zone_query(words: FormReader, question: str, where: str) -> Query:
    from metricshuffle.planning.query_words import QueryWords
    from metricshuffle.spaces.cell_systems import MAX_H3_RESOLUTION

    resolution = words.whole("resolution")
    unit = words.unit()
    if resolution is not None and not 0 <= resolution <= MAX_H3_RESOLUTION:
        words.refuse(
            "resolution", f"must be a resolution from 0 to {MAX_H3_RESOLUTION}, got {resolution:,}."
        )
    if where == "grid":
        words.refuse("where", "must be a box in degrees for cells of H3.")
    south, west, north, east = (words.number(name) for name in ("south", "west", "north", "east"))
    words.checked()
    box = (south or 0.0, west or 0.0, north or 0.0, east or 0.0)
    try:
        return QueryWords(unit=unit, h3=resolution, box=box).query(question)
    except MetricShuffleError as error:
        raise error.renamed(h3="resolution") from None


def _labels(words: FormReader, name: str = "labels") -> list[str]:
    text = words.text(name)
    labels = [label.strip() for label in text.replace("\n", ",").split(",")]
    if not text:
        words.refuse(
            name, "is empty; give at least two, with a comma between them, like tea, coffee."
        )
    elif len(text) > MAX_TEXT_LENGTH:
        words.refuse(name, f"is longer than {MAX_TEXT_LENGTH:,} characters.")
    elif "" in labels:
        words.refuse(name, "has an empty one; write them with one comma between, like tea, coffee.")
    elif len(labels) < 2:
        words.refuse(name, f"names {len(labels)}; at least two are needed.")
    elif len(set(labels)) < len(labels):
        words.refuse(name, "names one of them twice.")
    words.checked()
    return labels


def _category_query(words: FormReader) -> Query:
    from metricshuffle.planning.query_words import QueryWords

    return QueryWords(labels=_labels(words)).query("histogram")


def _items_query(words: FormReader) -> Query:
    from metricshuffle.planning.query_words import QueryWords

    question = words.choice("question")
    item = words.choice("item")
    unit = words.unit()
    low = high = levels = side = labels = positions = distances = table = None
    at = words.numbers("thresholds") if question == "share-above" else None
    fade = words.number("fade") if question == "share-above" else None
    if question in ("total", "share-above") and item != "number":
        words.refuse("item", "of a total, or above a threshold, is a whole number.")
    if item == "number":
        low = words.whole("low")
        high = words.whole("high")
        words.ordered("low", "high", low, high)
    elif item == "label":
        if question == "mean":
            words.refuse("item", "of a mean is a number or a place; words have no mean.")
        labels = _labels(words)
    elif item == "placed":
        if question not in ITEM_FUNCTIONS:
            words.refuse(
                "item", "a word with a position only for columns of a table, regions and distances."
            )
        positions = _point_table(words, "positions")
    else:
        levels = words.whole("levels")
        side = words.number("side")
    items = words.whole("items")
    if question in ITEM_FUNCTIONS:
        table = ITEM_FUNCTIONS[question](words)
    words.checked()
    if positions is not None:
        if positions.on_globe and unit not in ("", "km", "m"):
            raise FieldErrors({"unit": f"Unit of places on the globe is km or m, got {unit!r}."})
        labels, distances = positions.positions(None, unit)
    items_words = QueryWords(
        low=low,
        high=high,
        unit=unit,
        labels=labels,
        distances=distances,
        levels=levels,
        side=side,
        items=items,
        at=at,
        fade=fade,
        table=table,
    )
    try:
        return items_words.query("user-linear" if table is not None else f"user-{question}")
    except MetricShuffleError as error:
        raise error.renamed(at="thresholds", width="fade", points="distance_to") from None


def _point_table(words: FormReader, name: str) -> PointTable | None:
    """The table of a field; None with an error if it is empty, too long or not a table."""
    from metricshuffle.data.point_tables import PointTable

    text = words.text(name)
    if not text:
        words.refuse(name, "is empty; give a header and a row for each point.")
    elif len(text) > MAX_TABLE_LENGTH:
        words.refuse(
            name,
            f"is longer than {MAX_TABLE_LENGTH:,} characters; the command reads larger ones from "
            "a file.",
        )
    else:
        try:
            return PointTable.parse(text, name)
        except MetricShuffleError as error:
            raise FieldErrors({name: page_text(error, words.fields)}) from None
    return None


def _columns_function(words: FormReader) -> ItemFunction:
    """Means of the columns of a table, or similarities of its rows."""
    table = _point_table(words, "table")
    compared = _point_table(words, "similar_to") if words.text("similar_to") else None
    words.checked()
    assert table is not None  # noqa: S101 - checked above
    return lambda people: table.columns(people, compared)


def _regions_function(words: FormReader) -> ItemFunction:
    regions, fade = _point_table(words, "regions"), words.number("fade")
    if not words.text("fade"):
        words.refuse("fade", "is empty; regions need it, as sharp edges would tell nearby apart.")
    words.checked()
    assert regions is not None and fade is not None  # noqa: S101, PT018 - checked above
    return lambda people: regions.regions(people, fade)


def _distance_function(words: FormReader) -> ItemFunction:
    from metricshuffle.queries import UserLinearQuery

    item = words.choice("item")
    points: list[object] = [point.strip() for point in words.text("distance_to").split(",")]
    if item == "square":
        words.refuse("item", "a number or a word, if distances to some of them are asked for.")
    if item == "number":
        numbers = words.numbers("distance_to") or ()
        if any(number != int(number) for number in numbers):
            words.refuse("distance_to", "must be whole numbers, with commas between them.")
        points = list(map(int, numbers))
    words.checked()

    def distances(people: Users) -> UserLinearQuery:
        try:
            return UserLinearQuery.distance_to(people, points)
        except MetricShuffleError as error:
            sentence = page_text(error.prefixed(f"{argument('distance_to')}: "), words.fields)
            raise FieldErrors({"distance_to": sentence}) from None

    return distances


ITEM_FUNCTIONS: dict[str, Callable[[FormReader], ItemFunction]] = {
    "table": _columns_function,
    "regions": _regions_function,
    "distance": _distance_function,
}
"""Questions about a function of items, by their names on the card."""


def _record_query(words: FormReader) -> Query:
    from metricshuffle.planning.query_words import QueryWords

    question = words.choice("question")
    column = labels = size = low = high = unit = granularity = None
    if question == "means":
        column = tuple(_labels(words, "columns"))
    else:
        labels, size = _labels(words), words.whole("size")
    if question != "sets":
        low, high, unit = words.bound("low"), words.bound("high"), words.unit()
        granularity = words.number("granularity")
        words.ordered("low", "high", low, high)
    words.checked()
    records = QueryWords(low=low, high=high, unit=unit, column=column, labels=labels, size=size)
    try:
        return records.query(question, granularity=granularity)
    except MetricShuffleError as error:
        raise error.renamed(step="granularity") from None


_QUERY_READERS = {
    "number": _number_query,
    "place": _place_query,
    "category": _category_query,
    "records": _record_query,
    "items": _items_query,
}

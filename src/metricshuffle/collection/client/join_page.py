"""The page on which people take part: what is asked, by whom and until when, what is promised, a field, and what will be sent before it is.

It is one file that loads nothing: the script (clients/js, built into pages/static) and the bytes of the collection are in it, and its
policy allows that script by its hash and one address to send to. Whoever serves a page could exchange its script; so it says who serves
it, and `metricshuffle join-page` writes the same page for another site, with a hash that can be published.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from metricshuffle.collection.terms import Collection, Terms
from metricshuffle.errors import PlanError, require
from metricshuffle.numerics.rounding import format_number
from metricshuffle.planning.consent import consent
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.tasks.task import Task

if TYPE_CHECKING:
    from metricshuffle.numerics.types import Floats
    from metricshuffle.report.charts.release_maps import Background

MAX_LISTED_LABELS = 12
"""Labels that are listed one below the other; more are chosen from a menu."""
MAX_GRID_LINES = 40
"""Of the net over a map, in either direction."""
HIDDEN_HEADING, NOT_HIDDEN_HEADING = "What nobody learns", "What is not hidden"
"""Headings of the consent text: where both promises stand."""
HEADINGS = {"number": "Take part with one number", "label": "Take part with one answer", "place": "Take part with one place",
            "degrees": "Take part with one place"}  # fmt: skip


@cache
def client_bundle() -> bytes:
    """The script of the page: the JavaScript client and what the page does with it."""
    script = (files("metricshuffle.report") / "static" / "client.js").read_bytes()
    if b"</script" in script.lower() or b"<!--" in script:
        raise PlanError("the script of the join page would end early on it; build it again.")
    return script


@dataclass(frozen=True)
class ClickableMap:
    """A grid to click: a net of lines, and what may lie beneath it, in cells from the left top corner."""

    width: int
    height: int
    net: str
    shore: str
    ways: str
    ring: str
    """How large the ring around the chosen cell is: of a fine grid a cell cannot be seen."""


@dataclass(frozen=True)
class JoinField:
    """The field of a value."""

    kind: str
    recipe: dict[str, Any]
    words: str
    many: str = ""
    """How many items are asked for, if it is not one value."""
    map: ClickableMap | None = None

    @classmethod
    def of(cls, recipe: dict[str, Any], background: Background | None) -> JoinField:
        value, many = recipe, ""
        if recipe["kind"] == "items":
            value, count, max_items = recipe["of"], recipe["count"], recipe["most"]
            many = f"{count:,}" if count is not None else "as many as you have" if max_items is None else f"1 to {max_items:,}"
        unit = f" {value['unit']}" if value.get("unit") else ""
        if value["kind"] == "label":
            return cls("label", value, "Choose one of these.", many)
        if value["kind"] == "place":
            size = f"{value['width']:,} by {value['height']:,} squares, each {format_number(float(value['cell']))}{unit} wide"
            if value["box"]:
                south, west, north, east = map(_number_text, value["box"])
                size += f", over latitudes {south} to {north} and longitudes {west} to {east}"
            return cls("place", value, f"Choose a square: {size}.", many, _map(value, background))
        if value["kind"] == "degrees":
            south, west, north, east = map(_number_text, value["box"])
            return cls("degrees", value, f"Enter a latitude from {south} to {north} and a longitude from {west} to {east}.", many)
        whole = "A whole number" if value["whole"] else "A number"
        return cls("number", value, f"{whole} from {_number_text(value['low'])} to {_number_text(value['high'])}{unit}.", many)

    @property
    def heading(self) -> str:
        return "Take part with your items" if self.many else HEADINGS[self.kind]

    @property
    def few(self) -> bool:
        return len(self.recipe.get("labels", ())) <= MAX_LISTED_LABELS


def join_page(
    collection: Collection, base: str, *, contact: str = "", background: Background | None = None, clock: Sequence[str] = ()
) -> str:
    """The page of a collection, as whoever is at the address `base` serves it. The collection is believed: verify it first.

    `contact` says who answers questions; `background` is drawn beneath the net of a map; `clock` has what the operator did to the clock.
    """
    require("jinja2", "service")
    from metricshuffle.report.template_engine import render_template

    terms, task = collection.terms, collection.task
    field = JoinField.of(terms.recipe["input"], background) if terms.recipe["browser"] else None
    client_bundle()  # (refuses one that would not stay a script)
    return render_template(
        "join.html.jinja",
        asked=field,
        why_not=terms.recipe.get("why", ""),
        heading=task.title or ("Take part" if field is None else field.heading),
        terms=terms,
        clock=clock,
        task=task,
        digest=collection.digest,
        report_size=collection.sealing.report_size,
        goes_to=terms.hops[0].url,
        base=base,
        consent=_sections(task, terms, contact),
        drawn=_drawn(task, terms),
        served=collection.served.decode(),
        connects="'self'" if base == terms.hops[0].url else f"{_source(collection.url)}/reports {_source(collection.url)}/state",
        scripts=["static/client.js"],
        styles=["join.css"],
    )


def _source(url: str) -> str:
    """An address as a policy takes it: what would end it there is escaped."""
    return url.replace(";", "%3B").replace(",", "%2C")


@dataclass(frozen=True)
class ConsentSection:
    """A section of the consent text; `promised`: it says what is promised; `broken`: what is left of that if the shuffler is not honest."""

    heading: str
    words: str
    promised: bool = False
    broken: str = ""


def _sections(task: Task, terms: Terms, contact: str) -> list[ConsentSection]:
    sections, mixed = [], task.protocol.trusted == "shuffler"
    for section in consent(task, contact=contact, minimum=terms.minimum).sections:
        sentences = list(section.sentences)
        broken = sentences.pop() if mixed and section.heading == NOT_HIDDEN_HEADING else ""
        sections.append(ConsentSection(section.heading, " ".join(sentences), section.heading == HIDDEN_HEADING, broken))
    return sections


def _drawn(task: Task, terms: Terms) -> str:
    """What the messages are, in words, for whoever sees them before they are sealed."""
    protocol, messages = task.protocol, terms.messages
    if isinstance(protocol, Frequencies):
        what = "this report" if messages == 1 else f"these {messages:,} reports"
        return f"Your device drew {what}. What you answered only made some reports likelier than others."
    if messages == 1:
        return "Your device added random noise to your answer. This is what came out."
    numbered = " The number before the colon says which part of it a message belongs to." if protocol.layout.piles > 1 else ""
    what = f"{protocol.row:,} whole numbers with random noise" if protocol.row > 1 else "a number with random noise"
    return (
        f"Your device turned your answer into {what}, and that into {messages:,} messages. One by one each of them is a random number; "
        f"only all of them together add up to what was drawn.{numbered}"
    )


def _number_text(number: str) -> str:
    """A number of a recipe as people write it."""
    value = float(number)
    return f"{int(value):,}" if value == int(value) and abs(value) < 2**53 else format_number(value)


def _map(value: dict[str, Any], background: Background | None) -> ClickableMap:
    width, height = value["width"], value["height"]
    step = max(1, math.ceil(max(width, height) / MAX_GRID_LINES))
    net = "".join([f"M{x} 0v{height}" for x in range(step, width, step)] + [f"M0 {y}h{width}" for y in range(height - step, 0, -step)])

    def path(line: Floats, closed: bool) -> str:
        points = " ".join(f"{x / float(value['cell']):.5g} {height - y / float(value['cell']):.5g}" for x, y in line.tolist())
        return f"M{points}{'Z' * closed}" if points else ""

    shore = "".join(path(ring, True) for area in background.areas for ring in area) if background else ""
    ways = "".join(path(line, False) for line in background.lines) if background else ""
    return ClickableMap(width, height, net, shore, ways, f"{max(1.0, max(width, height) / 40):.4g}")

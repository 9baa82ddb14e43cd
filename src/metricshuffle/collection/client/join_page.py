"""Join page: the page on which people take part in a collection.

It shows the question, the parties, the times and the guarantee, has a field for the answer, and
shows the messages before they are sent. It is one file that loads nothing: the script (clients/js,
built into report/static) and the bytes of the collection are part of it, and its policy allows only
that script, by its hash, and one address to send to. The server of a page could replace its script;
therefore the page names its server, and `metricshuffle join-page` writes the same page for another
site, with a hash that can be published.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.terms import Collection, Terms
from metricshuffle.errors import PlanError, require
from metricshuffle.numerics.rounding import format_number
from metricshuffle.planning.consent import consent
from metricshuffle.planning.translation import ENGLISH, language_codes
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.tasks.task import Task

if TYPE_CHECKING:
    from metricshuffle.numerics.types import Floats
    from metricshuffle.report.charts.map_layers import Background

MAX_LISTED_LABELS = 12
"""Maximum number of labels that are listed; more are chosen from a menu."""
MAX_MAP_NAMES = 8
"""Names of towns on a map to choose from, which a telephone shows small."""
MAX_GRID_LINES = 40
"""Maximum number of grid lines over a map, in either direction."""
HEADINGS = {
    "number": "Take part with one number",
    "group": "Take part with one answer",
    "label": "Take part with one answer",
    "place": "Take part with one place",
    "degrees": "Take part with one place",
    "trip": "Take part with one trip",
    "row": "Take part with your numbers",
    "set": "Take part with what you choose",
    "keys": "Take part with your numbers",
}


BUDGET = "static/budget.js"
"""Script of what was answered before."""
CLIENT = "static/client.js"
"""Script of the client and the page."""
CLIENT_WITH_TOKENS = "static/client-tokens.js"
"""The same for collections with tokens."""
SCRIPTS = (BUDGET, CLIENT, CLIENT_WITH_TOKENS)


@cache
def client_bundle(name: str = CLIENT) -> bytes:
    """Script of the page; by default the JavaScript client and the page's own code."""
    script = files("metricshuffle.report").joinpath(name).read_bytes()
    if b"</script" in script.lower() or b"<!--" in script:
        raise PlanError("the script of the join page would end early on it; build it again.")
    return script


def scripts_of(terms: Terms) -> tuple[str, ...]:
    """Scripts of the page of a collection, in their order."""
    return BUDGET, CLIENT if terms.issuer is None else CLIENT_WITH_TOKENS


@dataclass(frozen=True)
class ClickableMap:
    """Grid to click on, with an optional background, in cells from the top left corner."""

    width: int
    height: int
    net: str
    shore: str
    ways: str
    ring: str
    """Radius of the ring that marks the chosen cell, which a fine grid makes too small to see."""
    names: tuple[tuple[str, str, str], ...] = ()
    """Names of towns with their points, as text."""
    source: str = ""
    letters: str = ""
    """Height of letters."""


@dataclass(frozen=True)
class JoinField:
    """Input field of a value."""

    kind: str
    recipe: JsonObject
    words: str
    many: str = ""
    """Number of items that are asked for, as text; empty for one value."""
    map: ClickableMap | None = None

    @classmethod
    def of(cls, recipe: JsonObject, background: Background | None) -> JoinField:
        value = recipe
        many = ""
        if recipe["kind"] == "items":
            value = recipe["of"]
            count = recipe["count"]
            max_items = recipe["most"]
            many = (
                f"{count:,}"
                if count is not None
                else "as many as you have"
                if max_items is None
                else f"1 to {max_items:,}"
            )
        unit = f" {value['unit']}" if value.get("unit") else ""
        if value["kind"] == "group":
            number = cls.of(value["number"], None).words
            return cls("group", value, f"Choose a {value['by']} and enter a number. {number}")
        if value["kind"] == "label":
            return cls("label", value, "Choose one of these.", many)
        if value["kind"] == "trip":
            return cls("trip", value, "Choose where the trip starts and where it ends.")
        if value["kind"] == "set":
            return cls("set", value, f"Choose up to {value['most']:,} of these, or none.")
        if value["kind"] in ("row", "keys"):
            number = cls.of(value["number"], None).words
            words = f"Fill in all fields. Each of them: {number[0].lower()}{number[1:]}"
            if value["kind"] == "keys":
                words = (
                    f"Fill in up to {value['most']:,} of these, and leave those empty that do not "
                    f"apply. Each number: {number[0].lower()}{number[1:]}"
                )
            return cls(value["kind"], value, words)
        if value["kind"] == "place":
            size = (
                f"{value['width']:,} by {value['height']:,} squares, each "
                f"{format_number(float(value['cell']))}{unit} wide"
            )
            if value["box"]:
                south, west, north, east = map(_number_text, value["box"])
                size += f", over latitudes {south} to {north} and longitudes {west} to {east}"
            return cls("place", value, f"Choose a square: {size}.", many, _map(value, background))
        if value["kind"] == "degrees":
            south, west, north, east = map(_number_text, value["box"])
            return cls(
                "degrees",
                value,
                f"Enter a latitude from {south} to {north} and a longitude from {west} to {east}.",
                many,
            )
        whole = "A whole number" if value["whole"] else "A number"
        return cls(
            "number",
            value,
            f"{whole} from {_number_text(value['low'])} to {_number_text(value['high'])}{unit}.",
            many,
        )

    @property
    def heading(self) -> str:
        return "Take part with your items" if self.many else HEADINGS[self.kind]

    @property
    def few(self) -> bool:
        labels = self.recipe.get("label", self.recipe).get("labels", ())
        return len(labels) <= MAX_LISTED_LABELS


def join_page(
    collection: Collection,
    base: str,
    *,
    contact: str = "",
    background: Background | None = None,
    clock: Sequence[str] = (),
) -> str:
    """Page of a collection, as served from the address `base`.

    The collection is not verified here; verify it first.

    Args:
        contact: who answers questions.
        background: drawn beneath the grid of a map.
        clock: notes about what the operator did to the clock.
    """
    require("jinja2", "service")
    from metricshuffle.report.template_engine import render_template

    terms = collection.terms
    task = collection.task
    field = JoinField.of(terms.recipe["input"], background) if terms.recipe["browser"] else None
    scripts = scripts_of(terms)
    for name in scripts:
        client_bundle(name)  # raises if it contains the end of a script element
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
        consent=consent(task, contact=contact, minimum=terms.minimum),
        translations=[
            consent(task, contact=contact, minimum=terms.minimum, language=code)
            for code in language_codes()
            if code != ENGLISH
        ],
        drawn=_drawn(task, terms),
        served=collection.served.decode(),
        connects=_connections(collection, base),
        scripts=scripts,
        styles=["join.css"],
    )


def _connections(collection: Collection, base: str) -> str:
    """Addresses that a page at `base` may call."""
    terms = collection.terms
    url = _source(collection.url)
    own = "'self'" if base == terms.hops[0].url else f"{url}/reports {url}/state"
    return own if terms.issuer is None else f"{own} {_source(terms.issuer.url)}"


def _source(url: str) -> str:
    """Address as a content security policy takes it: characters that would end it are escaped."""
    return url.replace(";", "%3B").replace(",", "%2C")


def _drawn(task: Task, terms: Terms) -> str:
    """Description of the messages for people who look at them before they are sealed."""
    protocol = task.protocol
    messages = terms.messages
    if isinstance(protocol, Frequencies):
        what = "this report" if messages == 1 else f"these {messages:,} reports"
        return (
            f"Your device drew {what}. What you answered only made some reports likelier than "
            "others."
        )
    if isinstance(protocol, ShufflerNoise):
        changed = (
            "drew these numbers by chance" if protocol.changes_answers else "wrote it as numbers"
        )
        return (
            f"Your device took your answer and {changed}: they say in which part of each group it "
            "is. They are sealed, so that the shuffler cannot read them; it adds messages of its "
            "own to those of all people."
        )
    if messages == 1:
        return "Your device added random noise to your answer. This is what came out."
    numbered = (
        " The number before the colon says which part of it a message belongs to."
        if protocol.layout.piles > 1
        else ""
    )
    what = (
        f"{protocol.row:,} whole numbers with random noise"
        if protocol.row > 1
        else "a number with random noise"
    )
    return (
        f"Your device turned your answer into {what}, and that into {messages:,} messages. "
        "One by one each of them is a random number; "
        f"only all of them together add up to what was drawn.{numbered}"
    )


def _number_text(number: str) -> str:
    """Number of a recipe as people write it."""
    value = float(number)
    return f"{int(value):,}" if value == int(value) and abs(value) < 2**53 else format_number(value)


def _map(value: JsonObject, background: Background | None) -> ClickableMap:
    width = value["width"]
    height = value["height"]
    step = max(1, math.ceil(max(width, height) / MAX_GRID_LINES))
    net = "".join(
        [f"M{x} 0v{height}" for x in range(step, width, step)]
        + [f"M0 {y}h{width}" for y in range(height - step, 0, -step)]
    )

    def path(line: Floats, closed: bool) -> str:
        points = " ".join(
            f"{x / float(value['cell']):.5g} {height - y / float(value['cell']):.5g}"
            for x, y in line.tolist()
        )
        return f"M{points}{'Z' * closed}" if points else ""

    shore = (
        "".join(path(ring, True) for area in background.areas for ring in area)
        if background
        else ""
    )
    ways = "".join(path(line, False) for line in background.lines) if background else ""
    cell = float(value["cell"])
    names = tuple(
        (name, f"{east / cell:.5g}", f"{height - north / cell:.5g}")
        for name, east, north in (background.names[:MAX_MAP_NAMES] if background else ())
    )
    ring = f"{max(1.0, max(width, height) / 40):.4g}"
    source = background.source if background else ""
    letters = f"{max(width, height) / 36:.4g}"
    return ClickableMap(width, height, net, shore, ways, ring, names, source, letters)

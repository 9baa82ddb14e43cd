"""The questions that the page can be asked, a card each, with an example that works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metricshuffle.web.form_fields import Field, Slider

TYPICAL_DISTANCES = "Typical: 200 m to 1 km for homes, 50 to 200 kcal for a meal, 2 to 10 years for an age."


@dataclass(frozen=True)
class QuestionCard:
    """A kind of question: what it is about, and the fields that matter to it, in two groups."""

    name: str
    title: str
    about: str
    asked: tuple[Field, ...]
    wished: tuple[Field, ...]
    for_engineers: bool = False

    @property
    def fields(self) -> dict[str, Field]:
        return {field.name: field for field in (*self.asked, *self.wished)}

    def filled(self, typed: Mapping[str, str]) -> dict[str, str]:
        """What stands in the form: what was typed, and the example where nothing was. Boxes that are not ticked are not sent."""
        is_filled = bool(set(typed) & set(self.fields))
        return {name: typed.get(name, "" if is_filled and field.kind == "check" else field.example) for name, field in self.fields.items()}


def target_fields(
    distance: str, unit: str, error: str, error_unit: str, users: str, slider: Slider | None, error_slider: Slider
) -> tuple[Field, ...]:
    """What is wished for, whatever is asked: these fields are the same on the four cards."""
    distance_field = (
        Field(
            "distance", "Distance", f"Moves up to this far are hidden. {TYPICAL_DISTANCES} A file below tells how far apart people are.",
            distance, unit=unit, slider=slider,
        ),
    )  # fmt: skip
    return (
        Field(
            "first", "What comes first", "Fix what may be revealed and see the error, or the other way round.", "privacy", "choice",
            choices=(("privacy", "Privacy first"), ("accuracy", "Accuracy first")),
        ),
        Field(
            "epsilon", "Epsilon", "What may be revealed about a move of the distance below: 0.1 is very little, 1 is common, 8 is much.",
            "1", slider=Slider(0.05, 20), when=("first", ("privacy",)),
        ),
        Field(
            "error", "Error", "How far the answer may be off, on average; the smallest epsilon that reaches it is looked for.",
            error, unit=error_unit, slider=error_slider, when=("first", ("accuracy",)),
        ),
        *(distance_field if slider is not None else ()),
        Field("users", "People", "How many people report.", users, "whole", slider=Slider(10, 1_000_000, whole=True)),
        Field(
            "honest", "Honest people", "The share of them that can be counted on: others may stay away, or collude with whoever looks.",
            "90", unit="%", slider=Slider(10, 100, log=False, whole=True),
        ),
        Field("rounds", "Rounds", "How often the same people are asked; the promise covers all rounds together.", "1", "whole",
              slider=Slider(1, 52, log=False, whole=True)),
        Field(
            "trusted", "Whom you trust", "A shuffler mixes the reports, an aggregator adds them up, a curator sees every value.",
            "shuffler", "choice",
            choices=(("nobody", "Nobody"), ("shuffler", "A shuffler"), ("aggregator", "An aggregator"), ("curator", "A curator")),
        ),
        Field("delta", "Delta", "The probability with which the promise may fail; far below one over the number of people.", "1e-6"),
        Field("max_local_epsilon", "Most that one report reveals", "A limit on the epsilon of one report alone, if the trust is misplaced.",
              optional=True),
        Field("max_bits", "Most bits a person sends", "A limit on the length of a report.", kind="whole", optional=True),
        Field("flat", "The same epsilon for every move up to the distance", "Instead of less for nearer moves.", kind="check"),
        Field("choice", "Chosen protocol", "The one that was chosen from the table; the best if empty.", kind="hidden", optional=True),
    )  # fmt: skip


def wording_fields(example: str) -> tuple[Field, ...]:
    """What people will read; the first fields of the four cards. They are empty at first: an example that stays would be a lie."""
    return (
        Field("title", "Title", "What it is about, in a few words that people see.", "", "words", optional=True),
        Field("asking", "Question", f"As people will read it, like: {example}", "", "words", optional=True),
    )


NUMBER = QuestionCard(
    "number",
    "A number",
    "The mean, the sum or the spread of a number each: kilocalories, minutes, years.",
    (
        *wording_fields("How many kilocalories did your lunch have today?"),
        Field("question", "What you want to know", "One number about all people, or how many lie where.", "mean", "choice",
              choices=(("mean", "The mean"), ("sum", "The sum"), ("histogram", "A histogram"))),
        Field("low", "Smallest", "Whole numbers without a decimal point; 0.0 for real ones.", "0", unit="@unit"),
        Field("high", "Largest", "Nobody may hold more; larger numbers are refused or cut.", "1000", unit="@unit"),
        Field("unit", "Unit", "What the numbers count.", "kcal", "words", optional=True),
        Field("granularity", "Rounded to", "Numbers are rounded to steps of this, at random; real numbers need it.", "", unit="@unit",
              optional=True, when=("question", ("mean", "sum"))),
        Field("step", "Width of a bin", "How wide a bar of the histogram is.", "50", unit="@unit", when=("question", ("histogram",))),
        Field("encoding", "Messages", "How a report travels: shares are exact and quick to plan, single bits are simple to send.",
              "modular", "choice", choices=(("modular", "Shares"), ("unary", "Single bits"), ("auto", "Compare both (slower)")),
              when=("question", ("mean", "sum"))),
    ),
    target_fields("100", "@unit", "1", "in the unit; for a histogram a share, 0.01 is 1 %", "1000", Slider(1, 10_000), Slider(0.001, 100)),
)  # fmt: skip

PLACE = QuestionCard(
    "place",
    "A place",
    "A map of where people are, or the middle of all places.",
    (
        *wording_fields("Where do you live?"),
        Field(
            "question",
            "What you want to know",
            "A share for each square of a grid, or one place.",
            "map",
            "choice",
            choices=(("map", "A map"), ("centroid", "The middle")),
        ),
        Field(
            "where",
            "The area",
            "A grid of squares, or a box on the globe in degrees.",
            "grid",
            "choice",
            choices=(("grid", "A grid"), ("box", "A box in degrees")),
        ),
        Field("width", "Squares from west to east", "", "8", "whole", when=("where", ("grid",))),
        Field("height", "Squares from south to north", "", "6", "whole", when=("where", ("grid",))),
        Field("south", "South", "Latitude of the southern edge.", "48.10", unit="°", when=("where", ("box",))),
        Field("west", "West", "Longitude of the western edge.", "11.50", unit="°", when=("where", ("box",))),
        Field("north", "North", "Latitude of the northern edge.", "48.20", unit="°", when=("where", ("box",))),
        Field("east", "East", "Longitude of the eastern edge.", "11.65", unit="°", when=("where", ("box",))),
        Field(
            "cell",
            "Side of a square",
            "Places in one square are not told apart; the middle of a box needs no squares.",
            "500",
            unit="@unit",
        ),
        Field("unit", "Unit", "Of the side and the distance; m or km in degrees.", "m", "words", optional=True),
    ),
    target_fields(
        "1000", "@unit", "0.001", "a share, 0.01 is 1 %; for the middle in the unit", "5000", Slider(10, 20_000), Slider(0.0001, 1)
    ),
)

CATEGORY = QuestionCard(
    "category",
    "A category",
    "How many people gave which answer: drinks, parties, diagnoses.",
    (
        *wording_fields("What do you drink with lunch?"),
        Field(
            "labels", "Answers", "The possible answers with commas between them; they become public.", "tea, coffee, water, juice", "words"
        ),
    ),
    target_fields("1", "", "0.005", "a share, 0.01 is 1 %", "2000", None, Slider(0.0001, 0.2)),
)

ITEMS = QuestionCard(
    "items",
    "Many things per person",
    "Everybody holds several items (visits, purchases, words), and all of them are protected together.",
    (
        *wording_fields("At which hours were you on the bus last week?"),
        Field("question", "What you want to know", "How the items of all are spread, everybody counting the same; or their mean.",
              "histogram", "choice", choices=(("histogram", "How they are spread"), ("mean", "Their mean"))),
        Field("item", "An item is", "", "number", "choice",
              choices=(("number", "A whole number"), ("label", "A word"), ("square", "A place in nested squares"))),
        Field("low", "Smallest", "", "0", "whole", when=("item", ("number",))),
        Field("high", "Largest", "", "23", "whole", when=("item", ("number",))),
        Field("labels", "Words", "With commas between them; any two are 1 apart.", "home, work, shop, park", "words",
              when=("item", ("label",))),
        Field("levels", "Levels", "The area is cut into 2^levels squares along each side.", "3", "whole", when=("item", ("square",))),
        Field("side", "Side of the area", "Places are x and y from 0 to this.", "4000", when=("item", ("square",))),
        Field("unit", "Unit", "Of numbers, or of distances.", "hours", "words", optional=True),
        Field("items", "Items each", "Exactly so many for everybody; empty if numbers differ.", "10", "whole", optional=True),
        Field("most_items", "At most", "If numbers differ: the most that a person may hold; noisy vectors need it.", "", "whole",
              optional=True, when=("question", ("histogram",))),
    ),
    target_fields("2", "@unit", "0.5", "earth mover's distance, in the unit", "5000", Slider(0.1, 1000), Slider(0.001, 100)),
)  # fmt: skip

PLAN_CARDS = (NUMBER, PLACE, CATEGORY, ITEMS)

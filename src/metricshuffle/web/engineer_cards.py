"""Forms of the two cards for engineers: `amplify`, and `solve` for a local metric."""

from __future__ import annotations

from metricshuffle.web.card_fields import QuestionCard
from metricshuffle.web.form_fields import Field, Slider

PEOPLE = Field(
    "users",
    "People",
    "How many people report.",
    "10000",
    "whole",
    slider=Slider(10, 1_000_000, whole=True),
)
HONEST = Field(
    "honest",
    "Honest people",
    "The share that can be counted on.",
    "100",
    unit="%",
    slider=Slider(10, 100, log=False, whole=True),
)
DELTA = Field("delta", "Delta", "Between 0 and 1; with 0 a shuffler changes nothing.", "1e-6")

RANDOMIZERS = (
    ("generic", "Any"),
    ("krr", "k-ary response"),
    ("laplace", "Laplace"),
    ("metric", "Any with a metric"),
    ("rappor", "RAPPOR"),
    ("exponential", "Exponential"),
    ("pem", "Padded exponential"),
    ("gkrr", "Clustered response"),
    ("duchi", "Duchi"),
    ("harmony", "Harmony"),
    ("privset", "PrivSet"),
    ("privkv", "PrivKV"),
)
RANDOMIZER_FIELDS: dict[str, tuple[str, ...]] = {
    "generic": ("local_epsilon",),
    "krr": ("local_epsilon", "options"),
    "laplace": ("low", "high", "rate"),
    "metric": ("rate", "distance", "reach"),
    "rappor": ("local_epsilon", "options"),
    "exponential": ("low", "high", "rate"),
    "pem": ("low", "high", "rate"),
    "gkrr": ("clusters", "leaves", "inner", "rate"),
    "duchi": ("local_epsilon", "dimensions"),
    "harmony": ("local_epsilon", "dimensions"),
    "privset": ("local_epsilon", "options", "items"),
    "privkv": ("keys", "items", "key_epsilon", "value_epsilon"),
}
"""Fields of each randomizer, which are options of the command."""


def _when(field: str) -> tuple[str, tuple[str, ...]]:
    """Condition to show a field: one of the randomizers that have it is chosen."""
    return "randomizer", tuple(name for name, own in RANDOMIZER_FIELDS.items() if field in own)


AMPLIFY = QuestionCard(
    "amplify",
    "What shuffling adds",
    "Epsilon of shuffled reports of a randomizer that you have, from above (certified) and "
    "from below.",
    (
        Field(
            "randomizer",
            "Randomizer",
            "What one person sends.",
            "krr",
            "choice",
            choices=RANDOMIZERS,
        ),
        Field(
            "local_epsilon",
            "Local epsilon",
            "Of one report.",
            "1",
            slider=Slider(0.05, 20),
            when=_when("local_epsilon"),
        ),
        Field(
            "options",
            "Options",
            "How many values there are.",
            "10",
            "whole",
            when=_when("options"),
        ),
        Field(
            "dimensions",
            "Dimensions",
            "How many numbers in [-1, 1] a person has.",
            "3",
            "whole",
            when=_when("dimensions"),
        ),
        Field("keys", "Keys", "How many keys there are.", "4", "whole", when=_when("keys")),
        Field(
            "items",
            "Items",
            "How many labels a person has, or at most how many keys.",
            "2",
            "whole",
            when=_when("items"),
        ),
        Field(
            "key_epsilon",
            "Epsilon of a key",
            "Of whether a person has it.",
            "1",
            when=_when("key_epsilon"),
        ),
        Field(
            "value_epsilon",
            "Epsilon of a value",
            "Of its sign.",
            "1",
            when=_when("value_epsilon"),
        ),
        Field("clusters", "Clusters", "At distance 1.", "3", "whole", when=_when("clusters")),
        Field("leaves", "Points in each", "", "4", "whole", when=_when("leaves")),
        Field(
            "inner",
            "Inner distance",
            "Of two points in one cluster, below 1.",
            "0.25",
            when=_when("inner"),
        ),
        Field("low", "Smallest", "", "0", when=_when("low")),
        Field("high", "Largest", "", "10", when=_when("high")),
        Field(
            "rate",
            "Rate",
            "Epsilon per unit of distance.",
            "0.5",
            slider=Slider(0.01, 10),
            when=_when("rate"),
        ),
        Field(
            "distance",
            "Distance",
            "How far apart the two inputs are.",
            "1",
            when=_when("distance"),
        ),
        Field(
            "reach",
            "Reach",
            "How far they are from the farthest value.",
            "2",
            when=_when("reach"),
        ),
    ),
    (
        PEOPLE,
        HONEST,
        Field("rounds", "Rounds", "How often the same people report.", "1", "whole"),
        DELTA,
    ),
    for_engineers=True,
)

SOLVE = QuestionCard(
    "solve",
    "Which local metric",
    "From the privacy wanted after shuffling to a local metric that gives it, and a randomizer.",
    (
        Field(
            "space",
            "Values are",
            "",
            "line",
            "choice",
            choices=(
                ("line", "Numbers on a line"),
                ("circle", "Around a circle"),
                ("grid", "A grid"),
            ),
        ),
        Field("low", "Smallest", "", "0", when=("space", ("line", "circle"))),
        Field("high", "Largest", "", "10", when=("space", ("line", "circle"))),
        Field("width", "Squares from west to east", "", "4", "whole", when=("space", ("grid",))),
        Field("height", "Squares from south to north", "", "4", "whole", when=("space", ("grid",))),
    ),
    (
        Field(
            "epsilon",
            "Epsilon",
            "The total at the distance below, after shuffling.",
            "1",
            slider=Slider(0.05, 10),
        ),
        Field("distance", "Distance", "In units of the values.", "1", slider=Slider(0.5, 100)),
        PEOPLE,
        HONEST,
        DELTA,
    ),
    for_engineers=True,
)

ENGINEER_CARDS = {card.name: card for card in (AMPLIFY, SOLVE)}

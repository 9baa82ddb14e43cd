"""The forms of the two cards for engineers."""

from __future__ import annotations

from metricshuffle.web.form_fields import Field, Slider
from metricshuffle.web.question_cards import QuestionCard

PEOPLE = Field("users", "People", "How many people report.", "10000", "whole", slider=Slider(10, 1_000_000, whole=True))
HONEST = Field(
    "honest", "Honest people", "The share that can be counted on.", "100", unit="%", slider=Slider(10, 100, log=False, whole=True)
)
DELTA = Field("delta", "Delta", "Between 0 and 1; with 0 a shuffler changes nothing.", "1e-6")

AMPLIFY = QuestionCard(
    "amplify",
    "What shuffling adds",
    "Epsilon of shuffled reports of a randomizer that you have, from above (certified) and from below.",
    (
        Field("randomizer", "Randomizer", "What one person sends.", "krr", "choice",
              choices=(("generic", "Any"), ("krr", "k-ary response"), ("laplace", "Laplace"), ("metric", "Any with a metric"))),
        Field("local_epsilon", "Local epsilon", "Of one report.", "1", slider=Slider(0.05, 20), when=("randomizer", ("generic", "krr"))),
        Field("options", "Options", "How many values there are.", "10", "whole", when=("randomizer", ("krr",))),
        Field("low", "Smallest", "", "0", when=("randomizer", ("laplace",))),
        Field("high", "Largest", "", "10", when=("randomizer", ("laplace",))),
        Field("rate", "Rate", "Epsilon per unit of distance.", "0.5", slider=Slider(0.01, 10), when=("randomizer", ("laplace", "metric"))),
        Field("distance", "Distance", "How far apart the two inputs are.", "1", when=("randomizer", ("metric",))),
        Field("reach", "Reach", "How far they are from the farthest value.", "2", when=("randomizer", ("metric",))),
    ),
    (PEOPLE, HONEST, Field("rounds", "Rounds", "How often the same people report.", "1", "whole"), DELTA),
    for_engineers=True,
)  # fmt: skip

SOLVE = QuestionCard(
    "solve",
    "Which local metric",
    "From the privacy wanted after shuffling to a local metric that gives it, and a randomizer.",
    (
        Field("space", "Values are", "", "line", "choice",
              choices=(("line", "Numbers on a line"), ("circle", "Around a circle"), ("grid", "A grid"))),
        Field("low", "Smallest", "", "0", when=("space", ("line", "circle"))),
        Field("high", "Largest", "", "10", when=("space", ("line", "circle"))),
        Field("width", "Squares from west to east", "", "4", "whole", when=("space", ("grid",))),
        Field("height", "Squares from south to north", "", "4", "whole", when=("space", ("grid",))),
    ),
    (
        Field("epsilon", "Epsilon", "The total at the distance below, after shuffling.", "1", slider=Slider(0.05, 10)),
        Field("distance", "Distance", "In units of the values.", "1", slider=Slider(0.5, 100)),
        PEOPLE, HONEST, DELTA,
    ),
    for_engineers=True,
)  # fmt: skip

ENGINEER_CARDS = {card.name: card for card in (AMPLIFY, SOLVE)}

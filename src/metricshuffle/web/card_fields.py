"""Cards of questions, and the fields that all of them have: wording, target and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metricshuffle.planning.pairwise_distances import DISTANCE_EXAMPLES, DISTANCE_RULE
from metricshuffle.web.form_fields import Field, Slider


@dataclass(frozen=True)
class QuestionCard:
    """A kind of question, and its fields in two groups."""

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
        """Return the submitted values, and the examples of fields that were not submitted.

        Browsers do not submit boxes that are not ticked.
        """
        is_filled = bool(set(typed) & set(self.fields))
        return {
            name: typed.get(name, "" if is_filled and field.kind == "check" else field.example)
            for name, field in self.fields.items()
        }


def target_fields(
    distance: str,
    unit: str,
    error: str,
    error_unit: str,
    users: str,
    slider: Slider | None,
    error_slider: Slider,
    shares: tuple[str, tuple[str, ...]] | None = None,
) -> tuple[Field, ...]:
    """Fields of the target and limits, the same on all cards.

    `shares` is a field and its values for which the question asks for shares; None: it always does.
    """
    distance_field = (
        Field(
            "distance",
            "Distance",
            f"{DISTANCE_RULE} {' '.join(DISTANCE_EXAMPLES)} A dry run on a file draws how far "
            "apart people are.",
            distance,
            unit=unit,
            slider=slider,
        ),
    )
    return (
        Field(
            "first",
            "What comes first",
            "Fix what may be revealed and see the error, or the other way round.",
            "privacy",
            "choice",
            choices=(("privacy", "Privacy first"), ("accuracy", "Accuracy first")),
        ),
        Field(
            "epsilon",
            "Epsilon",
            "What may be revealed about a move of the distance below: 0.1 is very little, "
            "1 is common, 8 is much.",
            "1",
            slider=Slider(0.05, 20),
            when=("first", ("privacy",)),
        ),
        Field(
            "error",
            "Error",
            "How far the answer may be off, on average; the page finds the smallest epsilon "
            "that reaches it.",
            error,
            unit=error_unit,
            slider=error_slider,
            when=("first", ("accuracy",)),
        ),
        *(distance_field if slider is not None else ()),
        Field(
            "users",
            "People",
            "How many people report.",
            users,
            "whole",
            slider=Slider(10, 1_000_000, whole=True),
        ),
        Field(
            "honest",
            "Honest people",
            "The share of them that can be counted on: others may stay away, or collude "
            "with the analyst.",
            "90",
            unit="%",
            slider=Slider(10, 100, log=False, whole=True),
        ),
        Field(
            "rounds",
            "Rounds",
            "How often the same people are asked; the promise covers all rounds together.",
            "1",
            "whole",
            slider=Slider(1, 52, log=False, whole=True),
        ),
        Field(
            "trusted",
            "Whom you trust",
            "A shuffler mixes the reports, an aggregator adds them up, a curator sees every value.",
            "shuffler",
            "choice",
            choices=(
                ("nobody", "Nobody"),
                ("shuffler", "A shuffler"),
                ("aggregator", "An aggregator"),
                ("curator", "A curator"),
            ),
        ),
        Field(
            "delta",
            "Delta",
            "The probability with which the promise may fail; far below one over the "
            "number of people.",
            "1e-6",
        ),
        Field(
            "max_local_epsilon",
            "Most that one report reveals",
            "A limit on the epsilon of one report alone, if the trust is misplaced.",
            optional=True,
        ),
        Field(
            "max_bits",
            "Most bits a person sends",
            "A limit on the length of a report.",
            kind="whole",
            optional=True,
        ),
        Field(
            "max_damage",
            "Most that liars may move the answer",
            "A limit on what participants who lie can do, in the unit of the error (of shares a "
            "percentage like 1%); protocols without a certified limit are left out.",
            optional=True,
        ),
        Field(
            "liars",
            "Liars",
            "How many lie together, a number or a percentage such as 1%; one if left empty.",
            kind="words",
            optional=True,
        ),
        Field(
            "floor",
            "Floor",
            "Randomize values first where that is possible, so that something stays hidden if the "
            "shuffler colludes.",
            "always",
            "choice",
            choices=(
                ("always", "Always"),
                ("auto", "Auto: where errors grow at most 1.5 times"),
                ("never", "Never"),
            ),
            when=shares,
        ),
        Field(
            "flat",
            "The same epsilon for every move up to the distance",
            "Instead of less for nearer moves.",
            kind="check",
        ),
        Field(
            "choice",
            "Chosen protocol",
            "The one that was chosen from the table; the best if empty.",
            kind="hidden",
            optional=True,
        ),
    )


def wording_fields(example: str) -> tuple[Field, ...]:
    """Fields of the title and the question, the first of all cards.

    They have no example, because participants would read an example that was left unchanged.
    """
    return (
        Field(
            "title",
            "Title",
            "What it is about, in a few words that people see.",
            "",
            "words",
            optional=True,
        ),
        Field(
            "asking",
            "Question",
            f"As people will read it, like: {example}",
            "",
            "words",
            optional=True,
        ),
    )

"""Any input in a field gives an error at that field, or a valid query."""

from __future__ import annotations

import pytest

from metricshuffle.web.engineer_cards import ENGINEER_CARDS
from metricshuffle.web.engineer_results import engineer_html
from metricshuffle.web.form_fields import Field, FieldErrors
from metricshuffle.web.forms import CARDS, asked

ALWAYS_WRONG = ("ten", "nan", "inf", "-inf", "1,5", "1_000", "0x10", "--1", "9" * 5000)
ANYTHING = (
    *ALWAYS_WRONG,
    "",
    " ",
    "-5",
    "0",
    "1e300",
    "123456789012345678901234567890",
    "2.5",
    "1e-300",
    "x" * 30_000,
    "\0",
    "<b>",
    "1e99999",
)
NUMBERS = ("number", "whole")
ELSEWHERE = {
    ("low", "granularity"),
    ("high", "granularity"),
    ("labels", "distance"),
    ("side", "distance"),
    ("thresholds", "fade"),
    ("resolution", "where"),
    ("positions", "item"),
}
"""Input -> the other field where its error is shown.

A real number needs a step, a distance must fit its unit, a fade its threshold, cells of H3 need
a box in degrees, and words with positions a question about them.
"""


def chosen_for(field: Field) -> dict[str, str]:
    """What makes the form show a field."""
    return {} if field.when is None else {field.when[0]: field.when[1][0]}


def sentences(card: str, typed: dict[str, str]) -> dict[str, str]:
    """What is wrong with a form, beside which field."""
    try:
        asked(card, typed)
    except FieldErrors as wrong:
        return wrong.sentences
    return {}


@pytest.mark.parametrize("card", CARDS)
def test_a_sentence_stands_beside_the_field_that_it_is_about(card: str) -> None:
    for field in CARDS[card].fields.values():
        if field.kind in ("choice", "check", "hidden"):
            continue
        for typed in ANYTHING:
            told = sentences(card, {**chosen_for(field), field.name: typed})
            beside = field.name in told or all((field.name, name) in ELSEWHERE for name in told)
            assert beside, (field.name, typed[:40], told)
            assert all(
                len(sentence) < 400 and sentence.endswith(".") for sentence in told.values()
            ), told
            assert told or field.kind not in NUMBERS or typed not in ALWAYS_WRONG, (
                field.name,
                typed[:40],
            )


@pytest.mark.parametrize("card", ENGINEER_CARDS)
def test_cards_for_engineers_do_the_same(card: str) -> None:
    for field in ENGINEER_CARDS[card].fields.values():
        if field.kind not in NUMBERS:
            continue
        for typed in (
            *ALWAYS_WRONG,
            "",
            " ",
        ):  # nothing that is a number: these cards have no step before the computation
            with pytest.raises(FieldErrors) as wrong:
                engineer_html(card, {**chosen_for(field), field.name: typed})
            assert field.name in wrong.value.sentences, (
                field.name,
                typed[:40],
                wrong.value.sentences,
            )


def test_ends_in_the_wrong_order_are_told_beside_both() -> None:
    for card, low, high, typed in (
        ("number", "low", "high", {"low": "7", "high": "3"}),
        ("items", "low", "high", {"low": "7", "high": "7"}),
        ("place", "south", "north", {"where": "box", "south": "50"}),
        ("place", "west", "east", {"where": "box", "east": "-170"}),
    ):
        with pytest.raises(FieldErrors) as wrong:
            asked(card, typed)
        assert set(wrong.value.sentences) == {low, high}


def test_a_box_that_is_too_long_is_told_beside_its_ends() -> None:
    with pytest.raises(FieldErrors, match="500 km") as wrong:
        asked("place", {"where": "box", "west": "-60"})
    assert set(wrong.value.sentences) == {"west", "east"}

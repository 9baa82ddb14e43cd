"""Title and question of a task, as the planner wrote them; nothing proves that they are true.

They are printed next to guarantees, on terminals and on pages, so they must not imitate anything
else there: one line each, no control characters, nothing that changes the direction of writing, and
nothing invisible.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated

from pydantic import AfterValidator

from metricshuffle.errors import InputError, argument

MAX_TITLE_LENGTH = 100
MAX_QUESTION_LENGTH = 500
MAX_ACCENTS = 4
"""Maximum number of accents on one letter; more would cover the lines above and below."""
NO_QUESTION = "This task does not say what the question is. Ask who planned it."
# Invisible characters that Unicode does not class as control characters.
INVISIBLE_CHARACTERS = frozenset(
    map(
        chr,
        [
            0x034F,
            0x115F,
            0x1160,
            0x17B4,
            0x17B5,
            *range(0x180B, 0x1810),
            0x2800,
            0x3164,
            *range(0xFE00, 0xFE0F),
            0xFFA0,
            *range(0xE0100, 0xE01F0),
        ],
    )
)


def validate_wording(text: str, name: str, longest: int) -> str:
    """Return the text, or raise a ValueError that does not repeat it.

    `name` begins the message, if given.
    """
    about = f"{argument(name)} " if name else ""
    if len(text) > longest:
        raise ValueError(
            f"{about}has {len(text):,} characters, and at most {longest} are shown; shorten it"
        )
    marks = 0
    for place, letter in enumerate(text, 1):
        if letter in "\n\r\v\f\x85\u2028\u2029":
            raise ValueError(f"{about}has a line end at character {place}; write it in one line")
        if not letter.isprintable() or letter in INVISIBLE_CHARACTERS:
            raise ValueError(
                f"{about}has the character U+{ord(letter):04X} at place {place}, which "
                "cannot be seen or changes how the rest is read; "
                "leave it out"
            )
        marks = marks + 1 if unicodedata.category(letter) in ("Mn", "Me") else 0
        if marks > MAX_ACCENTS:
            raise ValueError(
                f"{about}has more than {MAX_ACCENTS} accents on one letter at place "
                f"{place}; leave them out"
            )
    if not any(
        letter != " " and unicodedata.category(letter) not in ("Mn", "Me") for letter in text
    ):
        raise ValueError(f"{about}is blank; write something, or leave it out")
    if text != text.strip():
        raise ValueError(f"{about}begins or ends with a space; leave that out")
    return text


def normalize_wording(text: object, name: str, longest: int) -> str | None:
    """Normalize a typed text: strip it, and unify accents and spaces.

    Raises InputError if it is invalid.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise InputError(f"{argument(name)} must be text, got {type(text).__name__}.")
    if len(text) <= 10 * longest:  # normalizing megabytes takes a while
        text = unicodedata.normalize(
            "NFC", text.replace("\u00a0", " ").replace("\u202f", " ")
        ).strip()
    try:
        return validate_wording(text, name, longest)
    except ValueError as error:
        problem, _, remedy = str(error).partition("; ")
        raise InputError(f"{problem}.", remedy=f"{remedy}." if remedy else "") from None


def normalize_title(text: object) -> str | None:
    return normalize_wording(text, "title", MAX_TITLE_LENGTH)


def normalize_question(text: object) -> str | None:
    return normalize_wording(text, "question", MAX_QUESTION_LENGTH)


Title = Annotated[str, AfterValidator(lambda text: validate_wording(text, "", MAX_TITLE_LENGTH))]
Question = Annotated[
    str, AfterValidator(lambda text: validate_wording(text, "", MAX_QUESTION_LENGTH))
]


def quote_words(words: str, opening: str = "“", closing: str = "”") -> str:
    """Quote words in a sentence; quotation marks inside cannot end the quotation."""
    inside = words.translate(str.maketrans("“”„", "‘’‚"))
    return f"{opening}{inside}{closing}"


def question_sentence(question: str) -> str:
    """Question as a sentence that marks it as the planner's words.

    The other sentences are computed from the task.
    """
    end = "" if question[-1] in ".!?" else "."
    return f"The question, in the words of whoever planned it: {quote_words(question)}{end}"


def wording_lines(title: str | None, question: str | None) -> list[str]:
    """Title and question, a line each; no line for a missing one."""
    named = (("Title", title), ("Question", question))
    return [f"{name}: {words}" for name, words in named if words is not None]


def wording_lines_or_notice(title: str | None, question: str | None) -> list[str]:
    """Same lines, for participants: a missing question is stated."""
    return [*wording_lines(title, question), *([NO_QUESTION] if question is None else [])]

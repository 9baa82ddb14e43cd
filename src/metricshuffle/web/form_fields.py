"""What a form asks for: fields with what they mean, an example that works, and the words that are typed into them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from metricshuffle.errors import InputError

Kind = Literal["number", "whole", "words", "choice", "check", "hidden"]
MAX_TEXT_LENGTH, MAX_UNIT_LENGTH = 20_000, 40
"""Characters of a field, because a list of labels may be long; and of the name of a unit."""
LARGEST_WHOLE = 9e15
"""Up to there every whole number is a floating-point number."""


@dataclass(frozen=True)
class Slider:
    """The ends of a slider beside a number box; `log` where it spans decades."""

    low: float
    high: float
    log: bool = True
    whole: bool = False


@dataclass(frozen=True)
class Field:
    """One thing that is asked for."""

    name: str
    label: str
    help: str
    example: str = ""
    kind: Kind = "number"
    unit: str = ""
    """Behind the box; "@unit" is what the field of that name holds."""
    choices: tuple[tuple[str, str], ...] = ()
    slider: Slider | None = None
    optional: bool = False
    when: tuple[str, tuple[str, ...]] | None = None
    """The field is shown if another one holds one of these words."""

    def shown_with(self, words: Mapping[str, str]) -> bool:
        return self.when is None or words.get(self.when[0], "") in self.when[1]


class FieldErrors(InputError):
    """What is wrong with each field, in a sentence that stands beside it; "" is for what no field is to blame for."""

    def __init__(self, sentences: Mapping[str, str]) -> None:
        self.sentences = dict(sentences)
        super().__init__(" ".join(self.sentences.values()))

    def __reduce__(self) -> tuple[type[FieldErrors], tuple[dict[str, str]]]:
        return FieldErrors, (self.sentences,)


@dataclass
class FormReader:
    """What was typed, read field by field; everything wrong is told at once, by `checked`."""

    fields: Mapping[str, Field]
    typed: Mapping[str, str]
    wrong: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.typed.get(name, self.fields[name].example).strip()

    def unit(self, name: str = "unit") -> str:
        """A short name, or none."""
        text = self.text(name)
        if len(text) > MAX_UNIT_LENGTH or not text.isprintable():
            self.refuse(name, f"is a short name like km, with at most {MAX_UNIT_LENGTH} letters.")
            return ""
        return text

    def number(self, name: str) -> float | None:
        """A finite number; None if it is empty and may be, or if it is wrong."""
        text = self._required_text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self.refuse(name, f"must be a number like {self.fields[name].example or '10'}, got {_short(text)}.")
            return None
        return value

    def whole(self, name: str) -> int | None:
        """A whole number, also written like 1e6."""
        value = self.number(name)
        if value is None:
            return None
        text = self.text(name)
        if value != int(value):
            self.refuse(name, f"must be a whole number, got {_short(text)}.")
            return None
        if abs(value) > LARGEST_WHOLE:
            self.refuse(name, f"is too large: at most {LARGEST_WHOLE:.0e}, got {_short(text)}.")
            return None
        return int(text) if text.lstrip("+-").isdigit() else int(value)

    def bound(self, name: str) -> int | float | None:
        """A whole number if it is written without a decimal point, else a real one."""
        value = self.number(name)
        return value if value is None or "." in self.text(name) or value != int(value) else self.whole(name)

    def choice(self, name: str) -> str:
        """One of a few words; the first where something else was sent."""
        among = [word for word, _ in self.fields[name].choices]
        word = self.text(name)
        if word not in among:
            self.refuse(name, f"must be one of {', '.join(among)}, got {_short(word)}.")
            return among[0]
        return word

    def is_checked(self, name: str) -> bool:
        return self.text(name) in ("on", "yes", "true", "1")

    def _required_text(self, name: str) -> str | None:
        text = self.text(name)
        if len(text) > MAX_TEXT_LENGTH:
            self.refuse(name, f"is longer than {MAX_TEXT_LENGTH:,} characters.")
            return None
        if not text:
            if not self.fields[name].optional:
                self.refuse(name, "is empty; give a number.")
            return None
        return text.replace("\u2009", "").replace("_", "x")  # 1_000 is Python's way of writing, and not a person's

    def ordered(self, low: str, high: str, below: float | None, above: float | None) -> None:
        """Refuse two ends in the wrong order, beside both: nobody knows which of them was meant otherwise."""
        if not {low, high} & set(self.wrong) and below is not None and above is not None and not below < above:
            got = f"got {_short(self.text(low), '')} and {_short(self.text(high), '')}."
            self.refuse(low, f"must be below “{self.fields[high].label}”, {got}")
            self.refuse(high, f"must be above “{self.fields[low].label}”, {got}")

    def refuse(self, name: str, sentence: str) -> None:
        """Note what is wrong with a field; the first thing counts."""
        self.wrong.setdefault(name, f"{self.fields[name].label} {sentence}")

    def checked(self) -> None:
        if self.wrong:
            raise FieldErrors(self.wrong)


def field_of_error(message: str, fields: Iterable[Field], also: Mapping[str, str] | None = None) -> str:
    """The name of the field that a sentence from below is about: the first one it names; "" if it names none.

    `also` are other names for fields, as Python calls them.
    """
    names = {field.name: field.name for field in fields if field.kind not in ("check", "hidden")}
    names |= {name: field for name, field in (also or {}).items() if field in names}
    places = [(_find_name(message, name), field) for name, field in names.items()]
    return min(((place, field) for place, field in places if place >= 0), default=(0, ""))[1]


def _find_name(message: str, name: str) -> int:
    import re

    named = re.search(rf"(?<![A-Za-z_]){re.escape(name)}(?![A-Za-z_])", message)
    return -1 if named is None else named.start()


def _short(text: str, quote: str = "'") -> str:
    return f"{quote}{text if len(text) <= 40 else f'{text[:40]}...'}{quote}"

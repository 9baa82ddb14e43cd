"""Form fields with help texts and working examples, and the reader of submitted values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from metricshuffle.errors import ArgumentNames, InputError, MetricShuffleError, python_name

Kind = Literal["number", "whole", "words", "table", "choice", "check", "hidden"]
MAX_TEXT_LENGTH = 20_000
"""Maximum characters of a field; a list of labels may be long."""
MAX_TABLE_LENGTH = 8_000
"""Maximum characters of a table: a form is an address, which a server reads up to some length."""
MAX_UNIT_LENGTH = 40
LARGEST_WHOLE = 9e15
"""Every whole number up to this one is exact in floating point."""


@dataclass(frozen=True)
class Slider:
    """Ends of a slider for a number; `log` if it spans decades."""

    low: float
    high: float
    log: bool = True
    whole: bool = False


@dataclass(frozen=True)
class Field:
    """One field of a form."""

    name: str
    label: str
    help: str
    example: str = ""
    kind: Kind = "number"
    unit: str = ""
    """Text after the box; "@unit" becomes the value of the field `unit`."""
    choices: tuple[tuple[str, str], ...] = ()
    slider: Slider | None = None
    optional: bool = False
    when: tuple[str, tuple[str, ...]] | None = None
    """(name, values): show the field only if the field `name` has one of the values."""

    def shown_with(self, words: Mapping[str, str]) -> bool:
        return self.when is None or words.get(self.when[0], "") in self.when[1]


class FieldErrors(InputError):
    """Error sentences by field; those under "" belong to no single field."""

    def __init__(self, sentences: Mapping[str, str]) -> None:
        self.sentences = dict(sentences)
        super().__init__(" ".join(self.sentences.values()))

    def __reduce__(self) -> tuple[type[FieldErrors], tuple[dict[str, str]]]:
        return FieldErrors, (self.sentences,)


@dataclass
class FormReader:
    """Reader of submitted values; `checked` raises all errors at once."""

    fields: Mapping[str, Field]
    typed: Mapping[str, str]
    wrong: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.typed.get(name, self.fields[name].example).strip()

    def unit(self, name: str = "unit") -> str:
        """A short name, or ""."""
        text = self.text(name)
        if len(text) > MAX_UNIT_LENGTH or not text.isprintable():
            self.refuse(name, f"is a short name like km, with at most {MAX_UNIT_LENGTH} letters.")
            return ""
        return text

    def number(self, name: str) -> float | None:
        """A finite number; None if it is invalid, or empty and optional."""
        text = self._required_text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self.refuse(
                name,
                f"must be a number like {self.fields[name].example or '10'}, got {_short(text)}.",
            )
            return None
        return value

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Numbers with commas between them; None if one is invalid or the field is empty."""
        text = self._required_text(name)
        if text is None:
            return None
        try:
            values = tuple(float(part) for part in text.split(","))
        except ValueError:
            values = (math.nan,)
        if not all(map(math.isfinite, values)):
            self.refuse(
                name,
                f"must be numbers with commas between them, like {self.fields[name].example}, got "
                f"{_short(text)}.",
            )
            return None
        return values

    def whole(self, name: str) -> int | None:
        """A whole number, also if written like 1e6."""
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
        return (
            value
            if value is None or "." in self.text(name) or value != int(value)
            else self.whole(name)
        )

    def choice(self, name: str) -> str:
        """One of the choices; the first one, with an error, if another value was sent."""
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
        # Refuse 1_000, which only Python accepts.
        return text.replace("\u2009", "").replace("_", "x")

    def ordered(self, low: str, high: str, below: float | None, above: float | None) -> None:
        """Record errors at both fields if two ends are in the wrong order: either may be wrong."""
        if (
            not {low, high} & set(self.wrong)
            and below is not None
            and above is not None
            and not below < above
        ):
            got = f"got {_short(self.text(low), '')} and {_short(self.text(high), '')}."
            self.refuse(low, f"must be below “{self.fields[high].label}”, {got}")
            self.refuse(high, f"must be above “{self.fields[low].label}”, {got}")

    def refuse(self, name: str, sentence: str) -> None:
        """Record an error of a field; only its first one counts."""
        self.wrong.setdefault(name, f"{self.fields[name].label} {sentence}")

    def checked(self) -> None:
        if self.wrong:
            raise FieldErrors(self.wrong)


def label_names(labels: Mapping[str, str]) -> ArgumentNames:
    """Return a function that formats arguments as the quoted labels of their fields."""

    def label(name: str, value: str | None) -> str:
        if name not in labels:
            return python_name(name, value)
        quoted = f"“{labels[name]}”"
        return quoted if value is None else f"{quoted} {value.strip(chr(39))}"

    return label


def page_text(error: MetricShuffleError, fields: Mapping[str, Field]) -> str:
    """Return the sentence of an error, with the labels of form fields in place of arguments."""
    text = error.text(label_names({name: field.label for name, field in fields.items()}))
    if text.startswith("“"):
        text = text.replace("“", "", 1).replace("”", "", 1)
    return f"{text[:1].upper()}{text[1:]}"


def _short(text: str, quote: str = "'") -> str:
    return f"{quote}{text if len(text) <= 40 else f'{text[:40]}...'}{quote}"

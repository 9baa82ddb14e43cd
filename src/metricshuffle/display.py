"""How results are shown: a one-line repr, a card in a notebook, a chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from typing import Any

# The report package is a higher layer than this module, so it is imported on demand only.
NOTEBOOK_MODULE = "metricshuffle.report.notebook"
MAX_LINE_LENGTH = 200
MAX_PART_LENGTH = 60
MAX_LISTED_PARTS = 3


def nearest_word(word: object, known: Iterable[object]) -> str:
    """A sentence with the nearest of the known words, or nothing if none is near."""
    originals = {str(name).lower(): str(name) for name in known}
    nearest = get_close_matches(str(word).lower(), originals, 1, 0.6)
    return f" The nearest is {originals[nearest[0]]}." if nearest else ""


def short_text(value: object) -> str:
    """Short text of a value for use within a line: long strings and collections are truncated."""
    if isinstance(value, str | bytes):
        return (
            repr(value)
            if len(value) <= MAX_PART_LENGTH // 2
            else f"{value[: MAX_PART_LENGTH // 2]!r}..."
        )
    if isinstance(value, Mapping):
        listed = [
            f"{short_text(key)}: {short_text(value[key])}"
            for key, _ in zip(value, range(MAX_LISTED_PARTS), strict=False)
        ]
        return (
            "{"
            + ", ".join(listed)
            + (f", ... {len(value):,} in all" if len(value) > MAX_LISTED_PARTS else "")
            + "}"
        )
    if isinstance(value, list | tuple):
        listed = [short_text(part) for part in value[:MAX_LISTED_PARTS]]
        return (
            "("
            + ", ".join(listed)
            + (f", ... {len(value):,} in all" if len(value) > MAX_LISTED_PARTS else "")
            + ")"
        )
    if (
        isinstance(shape := getattr(value, "shape", None), tuple) and shape
    ):  # an array (the shape of a distribution is a number)
        return f"{type(value).__name__} of {' x '.join(f'{side:,}' for side in shape)}"
    if callable(value) and hasattr(value, "__name__"):  # its repr would contain an address
        return str(value.__name__)
    text = repr(value)
    return (
        text
        if len(text) <= MAX_PART_LENGTH
        else _shorten(text, MAX_PART_LENGTH) or f"{type(value).__name__}(...)"
    )


def one_line_repr(name: str, parts: Iterable[tuple[str | None, object]]) -> str:
    """Return "Name(part=value, ...)" with at most MAX_LINE_LENGTH characters."""
    text = ", ".join(
        f"{part}={short_text(value)}" if part else short_text(value) for part, value in parts
    )
    return f"{name}({_shorten(text, MAX_LINE_LENGTH - len(name) - 8) or '...'})"


def _shorten(text: str, room: int) -> str:
    """Cut a text to about `room` characters at a space; empty if nothing would remain."""
    if len(text) <= room:
        return text
    shortened = text[: room - 4].rpartition(" ")[0]
    return (
        f"{shortened} ...{')' * (shortened.count('(') - shortened.count(')'))}" if shortened else ""
    )


class Brief:
    """Mixin for dataclasses: a repr of one short line, whatever the fields hold."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # else `dataclass` would generate a long one
            cls.__repr__ = Brief.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        names = (
            [field.name for field in fields(self) if field.repr]  # type: ignore[arg-type]
            if hasattr(self, "__dataclass_fields__")
            else []
        )
        return one_line_repr(type(self).__name__, ((name, getattr(self, name)) for name in names))


class HtmlRepr:
    """Mixin without fields: notebooks show the result as a card."""

    def _repr_html_(self) -> str:
        return str(import_module(NOTEBOOK_MODULE).html(self))


class Plottable(HtmlRepr):
    """Mixin for results that also have a chart."""

    def plot(self) -> Any:
        """Return a chart: altair's if installed, else an SVG chart (extra `report`).

        The SVG chart has `svg()` and `to_dict()`.
        """
        return plot_result(self)


def plot_result(thing: Plottable, **options: Any) -> Any:
    """Return the chart of a result; the options depend on its type."""
    return import_module(NOTEBOOK_MODULE).plot(thing, **options)

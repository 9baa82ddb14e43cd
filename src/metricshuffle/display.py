"""How results show themselves: in a line, as a card in a notebook, and as a chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

# Charts and pages lie above everything that they show, so the way there is looked up when somebody asks, and never imported.
NOTEBOOK_MODULE = "metricshuffle.report.notebook"
MAX_LINE_LENGTH, MAX_PART_LENGTH, MAX_LISTED_PARTS = 200, 60, 3


def short_text(value: object) -> str:
    """A value within a line: long texts are cut, and of many values the first few are told, and how many there are."""
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= MAX_PART_LENGTH // 2 else f"{value[: MAX_PART_LENGTH // 2]!r}..."
    if isinstance(value, Mapping):
        listed = [f"{short_text(key)}: {short_text(value[key])}" for key, _ in zip(value, range(MAX_LISTED_PARTS), strict=False)]
        return "{" + ", ".join(listed) + (f", ... {len(value):,} in all" if len(value) > MAX_LISTED_PARTS else "") + "}"
    if isinstance(value, list | tuple):
        listed = [short_text(part) for part in value[:MAX_LISTED_PARTS]]
        return "(" + ", ".join(listed) + (f", ... {len(value):,} in all" if len(value) > MAX_LISTED_PARTS else "") + ")"
    if isinstance(shape := getattr(value, "shape", None), tuple) and shape:  # an array; that of a distribution is a number
        return f"{type(value).__name__} of {' x '.join(f'{side:,}' for side in shape)}"
    if callable(value) and hasattr(value, "__name__"):  # whose address would be another one each time
        return str(value.__name__)
    text = repr(value)
    return text if len(text) <= MAX_PART_LENGTH else _shorten(text, MAX_PART_LENGTH) or f"{type(value).__name__}(...)"


def one_line_repr(name: str, parts: Iterable[tuple[str | None, object]]) -> str:
    """Name(part=value, ...) in at most MAX_LINE_LENGTH letters."""
    text = ", ".join(f"{part}={short_text(value)}" if part else short_text(value) for part, value in parts)
    return f"{name}({_shorten(text, MAX_LINE_LENGTH - len(name) - 8) or '...'})"


def _shorten(text: str, room: int) -> str:
    """At most about so many letters, and never half a number: what is left out starts after a space. Empty if nothing could be kept."""
    if len(text) <= room:
        return text
    shortened = text[: room - 4].rpartition(" ")[0]
    return f"{shortened} ...{')' * (shortened.count('(') - shortened.count(')'))}" if shortened else ""


class Brief:
    """A dataclass that tells itself in one short line, whatever it holds."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # else `dataclass` would write one that tells everything
            cls.__repr__ = Brief.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        names = [field.name for field in fields(self) if field.repr] if hasattr(self, "__dataclass_fields__") else []  # type: ignore[arg-type]
        return one_line_repr(type(self).__name__, ((name, getattr(self, name)) for name in names))


class HtmlRepr:
    """A result that notebooks show as a card. It has no fields."""

    def _repr_html_(self) -> str:
        return str(import_module(NOTEBOOK_MODULE).html(self))


class Plottable(HtmlRepr):
    """A result that has a chart, too."""

    def plot(self) -> Any:
        """A chart: altair's if altair is installed, else one that shows itself as SVG (extra `report`) and has `svg()` and `to_dict()`."""
        return plot_result(self)


def plot_result(thing: Plottable, **options: Any) -> Any:
    """The chart of a result; what it can be asked for depends on what it is."""
    return import_module(NOTEBOOK_MODULE).plot(thing, **options)

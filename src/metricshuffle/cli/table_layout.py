"""Tables of the terminal: side by side where they fit, stacked where they do not; a number is never cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

COLUMN_GAP = 2
INDENT = 3
"""Of the lines below the name of a stacked row; a mark like "->" stands in it."""
MIN_TEXT_WIDTH = 16
"""A column of words that is narrower than this (and than its longest cell) is no pleasure to read: stack instead."""


@dataclass(frozen=True)
class Column:
    """What a column is called (lines as they stand above it), and how its cells may be laid out."""

    title: str = ""
    number: bool = False
    """To the right."""
    wraps: bool = False
    """Words, which may go on in the next line, at a space."""
    once: bool = False
    """Left empty where it repeats the row above, if rows stand below each other."""
    heads: bool = False
    """Names a row where rows are stacked; the first column with a title if none does."""

    @property
    def name(self) -> str:
        """On one line."""
        return " ".join(self.title.split())

    def widest(self, cells: Sequence[str]) -> int:
        return max(_width(line) for text in (self.title, *cells) for line in text.split("\n"))

    def least(self, cells: Sequence[str]) -> int:
        """As narrow as it may get."""
        widest = self.widest(cells)
        if not self.wraps:
            return widest
        longest_word = max((_width(word) for text in (self.title, *cells) for word in text.split()), default=0)
        return max(longest_word, min(widest, MIN_TEXT_WIDTH))


@dataclass(frozen=True)
class Line:
    """The cells of a row, and how they look."""

    cells: tuple[str, ...]
    style: str = ""
    last: str = ""
    """How the last cell looks, beside that."""


@dataclass(frozen=True)
class TableLayout:
    """A table for a rich console. What stands before the name of a row in columns without a title is a mark, like "->"."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self.widths(options.max_width)
        yield from self._stack_rows(options.max_width) if widths is None else self._side_by_side(widths)

    def _cells(self, index: int) -> list[str]:
        return [line.cells[index] for line in self.lines]

    def widths(self, room: int) -> list[int] | None:
        """How wide each column is in so much room; None if there is too little for all of them."""
        room -= COLUMN_GAP * (len(self.columns) - 1)
        widths = [column.least(self._cells(index)) for index, column in enumerate(self.columns)]
        wanted = [column.widest(self._cells(index)) for index, column in enumerate(self.columns)]
        spare = room - sum(widths)
        if spare < 0:
            return None
        while spare > 0 and widths != wanted:
            # Whoever lacks most gets the next place.
            lacking = max(range(len(widths)), key=lambda index: wanted[index] - widths[index])
            widths[lacking] += 1
            spare -= 1
        return widths

    def _side_by_side(self, widths: list[int]) -> RenderResult:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, padding=(0, COLUMN_GAP - 1, 0, 0), pad_edge=False, show_edge=False)
        for column, width in zip(self.columns, widths, strict=True):
            justify = "right" if column.number else "left"
            table.add_column(Text(column.title), justify=justify, width=width, no_wrap=not column.wraps, overflow="fold")  # type: ignore[arg-type]
        before: tuple[str, ...] = ("",) * len(self.columns)
        for line in self.lines:
            texts = (
                "" if column.once and cell == above else cell for column, cell, above in zip(self.columns, line.cells, before, strict=True)
            )
            *cells, last = map(Text, texts)
            last.stylize(line.last)
            table.add_row(*cells, last, style=line.style or None)
            before = line.cells
        yield table

    def _stack_rows(self, room: int) -> RenderResult:
        """Each row as a small block: its name, and a line "name: value" for every other cell that is not empty."""
        from rich.text import Text

        for index, line in enumerate(self.lines):
            mark, name, facts = self._block(line)
            block = [*fold_lines(f"{mark} {name}" if mark else name, room, 0)]
            for fact in facts:
                block += fold_lines(fact, room, INDENT)
            yield Text("\n".join(([""] if index else []) + block), style=line.style, overflow="fold")

    def _block(self, line: Line) -> tuple[str, str, list[str]]:
        """The mark, the name and the other facts of a row."""
        heads = [index for index, column in enumerate(self.columns) if column.heads]
        head = heads[0] if heads else next(index for index, column in enumerate(self.columns) if column.title)
        mark = " ".join(cell for cell, column in zip(line.cells[:head], self.columns[:head], strict=True) if cell and not column.title)
        name = line.cells[head]
        if self.columns[head].number:
            name = f"{self.columns[head].name} {name}"
        facts = [
            f"{column.name}: {cell}"
            for index, (column, cell) in enumerate(zip(self.columns, line.cells, strict=True))
            if cell and column.title and index != head
        ]
        return mark, name, facts


def fold_lines(text: str, room: int, indent: int) -> list[str]:
    """Lines that fit, broken at spaces only (but for a word that is wider than the terminal); further ones stand deeper."""
    from textwrap import wrap

    begins, goes_on = " " * indent, " " * (indent + 2)
    return wrap(
        text, max(room, indent + 4), initial_indent=begins, subsequent_indent=goes_on, break_long_words=False, break_on_hyphens=False
    )


def _width(text: str) -> int:
    """Places that a text takes in a terminal."""
    from rich.cells import cell_len

    return cell_len(text)

"""Tables for the terminal: rich tables if all columns fit, otherwise one block of lines per row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement, measure_renderables
from rich.table import Table
from rich.text import Text

from metricshuffle.cli.console import fold_lines

COLUMN_GAP = 2
INDENT = 3
"""Indentation below the name of a stacked row, which leaves room for a mark like "->"."""
MIN_TEXT_WIDTH = 16
"""Minimum width of a text column; below it rows are stacked."""
UNLIMITED_WIDTH = 10_000


@dataclass(frozen=True)
class Column:
    """Title of a column, with its line breaks, and the layout of its cells."""

    title: str = ""
    number: bool = False
    """Align to the right."""
    wraps: bool = False
    """Wrap text at spaces."""
    once: bool = False
    """Leave empty where it repeats the row above, unless rows are stacked."""
    heads: bool = False
    """Use as the name of a stacked row; by default the first column with a title is used."""

    @property
    def name(self) -> str:
        """The title on one line."""
        return " ".join(self.title.split())


@dataclass(frozen=True)
class Line:
    """The cells of a row and their styles."""

    cells: tuple[str, ...]
    style: str = ""
    last: str = ""
    """Additional style of the last cell."""


@dataclass(frozen=True)
class TableLayout:
    """A table for a rich console.

    In columns without a title, cells before the name of a row are marks, like "->".
    """

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(console, options)
        yield from (
            self._stacked_rows(options.max_width) if widths is None else [self._table(widths)]
        )

    def _widths(self, console: Console, options: ConsoleOptions) -> list[int] | None:
        """Width of each column; None if there is not enough room.

        The widths that rich chooses would break words: rich narrows the widest column, however long
        its words are.
        """
        widths = []
        wanted = []
        for index, column in enumerate(self.columns):
            texts = [Text(column.title), *(Text(line.cells[index]) for line in self.lines)]
            measured: Measurement = measure_renderables(
                console, options.update(width=UNLIMITED_WIDTH), texts
            )
            wanted.append(measured.maximum)
            narrowest = max(measured.minimum, min(measured.maximum, MIN_TEXT_WIDTH))
            widths.append(narrowest if column.wraps else measured.maximum)
        spare = options.max_width - COLUMN_GAP * (len(widths) - 1) - sum(widths)
        if spare < 0:
            return None
        for _ in range(min(spare, sum(wanted) - sum(widths))):
            lacking = max(range(len(widths)), key=lambda index: wanted[index] - widths[index])
            widths[lacking] += 1
        return widths

    def _table(self, widths: list[int]) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD, padding=(0, COLUMN_GAP - 1, 0, 0), pad_edge=False, show_edge=False
        )
        for column, width in zip(self.columns, widths, strict=True):
            table.add_column(
                Text(column.title),
                justify="right" if column.number else "left",
                width=width,
                no_wrap=not column.wraps,
                overflow="fold",
            )
        above: tuple[str, ...] = ("",) * len(self.columns)
        for line in self.lines:
            repeats = (
                column.once and cell == old
                for column, cell, old in zip(self.columns, line.cells, above, strict=True)
            )
            *cells, last = (
                Text("" if repeated else cell)
                for repeated, cell in zip(repeats, line.cells, strict=True)
            )
            last.stylize(line.last)
            table.add_row(*cells, last, style=line.style or None)
            above = line.cells
        return table

    def _stacked_rows(self, room: int) -> Iterator[Text]:
        """Each row as a block: its name, and a line "name: value" for every nonempty cell."""
        titled = [
            index for index, column in enumerate(self.columns) if column.title or column.heads
        ]
        head = next((index for index in titled if self.columns[index].heads), titled[0])
        for index, line in enumerate(self.lines):
            cells = list(zip(self.columns, line.cells, strict=True))
            mark = [cell for column, cell in cells[:head] if cell and not column.title]
            name = [self.columns[head].name] if self.columns[head].number else []
            block = [""] if index else []
            block += fold_lines(" ".join([*mark, *name, line.cells[head]]), room, 0)
            for column, cell in cells[:head] + cells[head + 1 :]:
                if cell and column.title:
                    block += fold_lines(f"{column.name}: {cell}", room, INDENT)
            yield Text("\n".join(block), style=line.style, overflow="fold")

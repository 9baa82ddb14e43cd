"""What people see: answers on stdout, progress and notes on stderr. No escape codes where nobody watches, or where NO_COLOR is set."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# Width of tables when nobody is watching (a pipe or a file).
UNWATCHED_WIDTH = 120


@dataclass
class _Verbosity:
    quiet: bool = False
    line: int = 0
    """How long the line of progress is that would have to be written over."""


_VERBOSITY = _Verbosity()


@contextmanager
def silence(quiet: bool) -> Iterator[None]:
    """No notes and no progress inside, if so; errors are told by `print_error`."""
    before, _VERBOSITY.quiet = _VERBOSITY.quiet, quiet
    try:
        yield
    finally:
        _VERBOSITY.quiet = before


def is_plain_text() -> bool:
    """Whether escape codes are unwanted: NO_COLOR is set to anything (no-color.org), or the terminal knows none."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")


def is_watched() -> bool:
    """Whether somebody may look at progress: stderr is a terminal, and --quiet was not asked for."""
    return sys.stderr.isatty() and not _VERBOSITY.quiet


def console(*, stderr: bool = False, **settings: Any) -> Console:
    """A rich console; every one of the command line is made here."""
    from rich.console import Console

    if is_plain_text():
        settings |= {"force_terminal": False, "color_system": None}
    return Console(stderr=stderr, quiet=stderr and _VERBOSITY.quiet, **settings)


@contextmanager
def show_progress(doing: str) -> Iterator[Callable[[str], None]]:
    """What runs, on stderr, if that is a terminal; call what it yields to say how far it is."""
    if not is_watched():
        yield lambda now: None
    elif is_plain_text():
        with _line_of_text(doing) as update:
            yield update
    else:
        from rich.markup import escape

        with console(stderr=True).status(f"{doing} ...") as status:
            yield lambda now: status.update(f"{doing}: {escape(now)} ...")


@contextmanager
def _line_of_text(doing: str) -> Iterator[Callable[[str], None]]:
    """Progress in one line that is written over, without escape codes."""

    def update(now: str) -> None:
        room = _width_of_stderr() - 1
        line = (f"{doing}: {now} ..." if now else f"{doing} ...")[:room]
        print(f"\r{line.ljust(min(_VERBOSITY.line, room))}", end="", file=sys.stderr, flush=True)
        _VERBOSITY.line = len(line)

    update("")
    try:
        yield update
    finally:
        _erase()


@contextmanager
def counting(names: Sequence[str]) -> Iterator[Iterator[tuple[str, Callable[[str], None]]]]:
    """Go through names with a bar on stderr, if that is a terminal; beside each one is what to call to say how far it is."""
    if not is_watched() or is_plain_text():
        with show_progress("Running") as update:
            yield ((name, _prefixed(update, f"{index} of {len(names)}, {name}")) for index, name in enumerate(names, 1))
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("", total=len(names))

        def each() -> Iterator[tuple[str, Callable[[str], None]]]:
            for name in names:
                yield name, _prefixed(lambda now: bar.update(task, description=escape(now)), name)
                bar.advance(task)

        yield each()


def _prefixed(update: Callable[[str], None], name: str) -> Callable[[str], None]:
    """Say it with the name before it; the name alone at once."""
    update(name)
    return lambda now: update(f"{name}: {now}")


def _width_of_stderr() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        return 80


def _erase() -> None:
    if _VERBOSITY.line:
        print(f"\r{' ' * _VERBOSITY.line}\r", end="", file=sys.stderr, flush=True)
        _VERBOSITY.line = 0


def note(*remarks: str) -> None:
    """Remarks beside the answer."""
    if remarks and not _VERBOSITY.quiet:
        _erase()
        for text in remarks:
            print(text, file=sys.stderr)


def print_error(text: str) -> None:
    """What went wrong, which --quiet does not hide."""
    print(f"metricshuffle: {' '.join(text.split())}", file=sys.stderr)


def note_rows_are_people(user_column: str | None) -> None:
    """Say once what a row was taken to be, where nobody said whose it is."""
    if user_column is None:
        note("Every row counted as another person; if a person may have several rows, name the column that tells them with --user-column.")


def screen() -> Console:
    """stdout as a rich console that wraps at words on a terminal and keeps lines whole elsewhere."""
    return console(width=None if sys.stdout.isatty() else UNWATCHED_WIDTH, highlight=False, markup=False, emoji=False)


def encodable_text(text: str) -> str:
    """Words as stdout can write them: letters that its encoding does not have are escaped, and end nothing with an error."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def say(console: Console, *lines: str) -> None:
    """Print lines of words; on a terminal an indented one goes on below its first word."""
    from metricshuffle.cli.table_layout import fold_lines

    for line in map(encodable_text, lines):
        indent = len(line) - len(line.lstrip())
        if sys.stdout.isatty() and indent and "\n" not in line:
            console.print("\n".join(fold_lines(line.strip(), console.width, indent)), overflow="fold")
        else:
            console.print(line, soft_wrap=not sys.stdout.isatty())

"""Terminal output: answers on stdout, progress and notes on stderr.

There are no escape codes outside a terminal or where NO_COLOR is set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# Width of tables if stdout is not a terminal.
UNWATCHED_WIDTH = 120


@dataclass
class _Verbosity:
    quiet: bool = False
    line: int = 0
    """Length of the current progress line, which has to be overwritten."""


_VERBOSITY = _Verbosity()


@contextmanager
def silence(quiet: bool) -> Iterator[None]:
    """Suppress notes and progress inside, if `quiet`; errors are still printed."""
    before = _VERBOSITY.quiet
    _VERBOSITY.quiet = quiet
    try:
        yield
    finally:
        _VERBOSITY.quiet = before


def is_plain_text() -> bool:
    """Whether escape codes are unwanted: NO_COLOR is set (no-color.org) or TERM has none."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")


def is_watched() -> bool:
    """Whether to show progress: stderr is a terminal and --quiet was not given."""
    return sys.stderr.isatty() and not _VERBOSITY.quiet


def console(*, stderr: bool = False, **settings: Any) -> Console:
    """Create a rich console; all consoles of the command line are created here."""
    from rich.console import Console

    if is_plain_text():
        settings |= {"force_terminal": False, "color_system": None}
    return Console(stderr=stderr, quiet=stderr and _VERBOSITY.quiet, **settings)


@contextmanager
def show_progress(doing: str) -> Iterator[Callable[[str], None]]:
    """Show progress on stderr, if it is a terminal; call the yielded function with updates."""
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
    """Progress in one line that is overwritten, without escape codes."""

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
    """Iterate over names with a progress bar on stderr, if it is a terminal.

    Each name comes with a function to call with updates.
    """
    if not is_watched() or is_plain_text():
        with show_progress("Running") as update:
            yield (
                (name, _prefixed(update, f"{index} of {len(names)}, {name}"))
                for index, name in enumerate(names, 1)
            )
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("", total=len(names))

        def each() -> Iterator[tuple[str, Callable[[str], None]]]:
            for name in names:
                yield name, _prefixed(lambda now: bar.update(task, description=escape(now)), name)
                bar.advance(task)

        yield each()


def _prefixed(update: Callable[[str], None], name: str) -> Callable[[str], None]:
    """Return an update function that adds the name, after showing the name alone."""
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
    """Print remarks to stderr, unless --quiet."""
    if remarks and not _VERBOSITY.quiet:
        _erase()
        for text in remarks:
            print(text, file=sys.stderr)


def print_error(text: str) -> None:
    """Print an error to stderr, also with --quiet."""
    print(f"metricshuffle: {' '.join(text.split())}", file=sys.stderr)


def note_rows_are_people(user_column: str | None) -> None:
    """Note that every row counted as a person, if no user column was given."""
    if user_column is None:
        note(
            "Every row counted as another person; if a person may have several rows, name "
            "the column that identifies people with --user-column."
        )


def screen() -> Console:
    """Return stdout as a rich console that wraps at words on a terminal only."""
    return console(
        width=None if sys.stdout.isatty() else UNWATCHED_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


def encodable_text(text: str) -> str:
    """Escape characters that the encoding of stdout does not have."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def say(console: Console, *lines: str) -> None:
    """Print lines of text; on a terminal, indented lines wrap with a hanging indent."""
    for line in map(encodable_text, lines):
        indent = len(line) - len(line.lstrip())
        if sys.stdout.isatty() and indent and "\n" not in line:
            console.print(
                "\n".join(fold_lines(line.strip(), console.width, indent)), overflow="fold"
            )
        else:
            console.print(line, soft_wrap=not sys.stdout.isatty())


def fold_lines(text: str, room: int, indent: int) -> list[str]:
    """Break text at spaces into lines of at most `room` columns, with a hanging indent of two."""
    from textwrap import wrap

    begins = " " * indent
    goes_on = " " * (indent + 2)
    return wrap(
        text,
        max(room, indent + 4),
        initial_indent=begins,
        subsequent_indent=goes_on,
        break_long_words=False,
        break_on_hyphens=False,
    )

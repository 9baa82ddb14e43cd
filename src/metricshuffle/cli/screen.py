"""What people see: answers on stdout, progress and notes on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# Width of tables when nobody is watching (a pipe or a file).
UNWATCHED_WIDTH = 120


@contextmanager
def working(doing: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr while something runs, if stderr is a terminal; call what it yields to say how far it is."""
    if not sys.stderr.isatty():
        yield lambda now: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(f"{doing} ...") as status:
        yield lambda now: status.update(f"{doing}: {escape(now)} ...")


def note(text: str) -> None:
    """A remark beside the answer."""
    print(text, file=sys.stderr)


def rows_are_people(user_column: str | None) -> None:
    """Say once what a row was taken to be, where nobody said whose it is."""
    if user_column is None:
        note("Every row counted as another person; if a person may have several rows, name the column that tells them with --user-column.")


def screen() -> Console:
    """stdout as a rich console that wraps at words on a terminal and keeps lines whole elsewhere."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else UNWATCHED_WIDTH, highlight=False, markup=False, emoji=False)


def say(console: Console, *lines: str) -> None:
    """Print lines of words."""
    for line in lines:
        console.print(line, soft_wrap=not sys.stdout.isatty())

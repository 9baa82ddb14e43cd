"""The options of `metricshuffle solve`, and the space they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import number, whole
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.spaces import Space

WHERE, PROMISE, CHOICE = "What values there are", "What is promised", "What is chosen and shown"

Low = Annotated[
    float | None, typer.Option("--low", parser=number, metavar="A", rich_help_panel=WHERE, help="Smallest number anybody may hold.")
]
High = Annotated[
    float | None, typer.Option("--high", parser=number, metavar="B", rich_help_panel=WHERE, help="Largest number anybody may hold.")
]
Step = Annotated[
    float | None,
    typer.Option("--step", parser=number, metavar="S", rich_help_panel=WHERE, help="Numbers are low, low + S, .., high (1 if left out)."),
]
Around = Annotated[
    bool, typer.Option("--around", rich_help_panel=WHERE, help="The numbers lie on a circle: low comes one step after high, as hours do.")
]
Width = Annotated[
    int | None, typer.Option("--width", parser=whole, metavar="CELLS", rich_help_panel=WHERE, help="Grid: cells from west to east.")
]
Height = Annotated[
    int | None, typer.Option("--height", parser=whole, metavar="CELLS", rich_help_panel=WHERE, help="Grid: cells from south to north.")
]
Cell = Annotated[
    float | None,
    typer.Option("--cell", parser=number, metavar="C", rich_help_panel=WHERE, help="Grid: side of a cell in units (1 if left out)."),
]
TreeFile = Annotated[
    Path | None,
    typer.Option(
        "--tree", metavar="FILE", rich_help_panel=WHERE,
        help="Labels along a tree: CSV without a header, a label, its parent (empty for the root) and the length of the link (or 1).",
    ),
]  # fmt: skip
Distances = Annotated[
    Path | None,
    typer.Option(
        "--distances", metavar="FILE", rich_help_panel=WHERE, help="Any values: CSV without a header, a row of distances for each."
    ),
]
Epsilon = Annotated[
    float,
    typer.Option("--epsilon", parser=number, metavar="E", rich_help_panel=PROMISE, help="Total epsilon at --distance, after shuffling."),
]
Distance = Annotated[
    float,
    typer.Option(
        "--distance", parser=number, metavar="D", rich_help_panel=PROMISE,
        help="The distance of --epsilon, in the unit of the values; other pairs get their share, nearer or farther.",
    ),
]  # fmt: skip
Delta = Annotated[
    float, typer.Option("--delta", parser=number, metavar="X", rich_help_panel=PROMISE, help="The delta of every pair, above 0.")
]
GridOption = Annotated[
    int, typer.Option("--grid", parser=whole, metavar="M", rich_help_panel=CHOICE, help="How many largest local epsilons are tried.")
]
AlgorithmOption = Annotated[
    str,
    typer.Option(
        "--algorithm", metavar="all|1|3|1N", rich_help_panel=CHOICE,
        help="The bound for any randomizer (docs/theorems.md): 1 Corollary 1; 3 Corollary 2; 1N clone pair; all: whichever allows most.",
    ),
]  # fmt: skip
LeastOption = Annotated[
    str,
    typer.Option(
        "--least", metavar="shares|report", rich_help_panel=CHOICE,
        help="What shall err least: the shares of a histogram, or what one report says about its value.",
    ),
]  # fmt: skip
Save = Annotated[
    Path | None,
    typer.Option(
        "--save", metavar="FILE", rich_help_panel=CHOICE,
        help="Write the randomizer as JSON: for `plan --randomizer FILE` and `amplify --randomizer file:FILE`.",
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Values:
    """What the options say about which values there are."""

    low: float | None
    high: float | None
    around: bool
    width: int | None
    height: int | None
    cell: float | None
    tree: Path | None
    distances: Path | None
    step: float | None

    def space(self) -> tuple[Space, float | None]:
        """The space, and the step of its numbers, if they have one of their own."""
        kinds = {
            "--low and --high": ("low", "high", "step", "around"),
            "--width and --height": ("width", "height", "cell"),
            "--tree": ("tree",),
            "--distances": ("distances",),
        }
        given_names = {name for name, value in vars(self).items() if value is not None and value is not False}  # 0.0 is given
        named = [words for words, options in kinds.items() if given_names & set(options)]
        if len(named) != 1:
            raise InputError(f"say what values there are by one of {', '.join(kinds)}; got {' and '.join(named) or 'none of them'}.")
        from metricshuffle.spaces import Categories, Grid, Space

        for name in {"--low and --high": ("low", "high"), "--width and --height": ("width", "height")}.get(named[0], ()):
            if getattr(self, name) is None:
                raise InputError(f"--{name} is missing: give both {named[0]}.")
        if named[0] == "--low and --high":
            return self._numbers()
        if self.width is not None and self.height is not None:
            return Space(Grid(self.width, self.height, 1.0 if self.cell is None else self.cell)), None
        if self.tree is not None:
            return read_tree(self.tree), None
        assert self.distances is not None  # noqa: S101 - the only one left
        from metricshuffle.cli.randomizer_options import rows_of_numbers
        from metricshuffle.spaces import Matrix

        if not self.distances.is_file():
            raise InputError(f"cannot read {self.distances}: there is no such file (--distances).")
        metric = Matrix(rows_of_numbers(self.distances, "--distances"))
        return Space(Categories([str(code) for code in range(metric.size or 0)]), metric), None

    def _numbers(self) -> tuple[Space, float | None]:
        from metricshuffle.solving.local_metric import LineTarget
        from metricshuffle.spaces import Circle, Integers, Interval, Space

        assert self.low is not None and self.high is not None  # noqa: S101, PT018 - looked at before
        step = 1.0 if self.step is None else self.step
        if not self.low < self.high:
            raise InputError(f"--low must be below --high, got {self.low:g} and {self.high:g}.")
        if not step > 0:
            raise InputError(f"--step must be greater than 0, got {step:g}.")
        line = LineTarget(self.low, self.high, 1.0, 1.0, step)  # says what is wrong with the step
        whole_numbers = step == 1.0 and self.low == int(self.low) and self.high == int(self.high)
        numbers = Integers(int(self.low), int(self.high)) if whole_numbers else Interval(self.low, self.high)
        return Space(numbers, Circle((line.steps + 1) * step) if self.around else None), None if whole_numbers else step


def read_tree(path: Path) -> Space:
    """Labels along the tree in a file."""
    import csv

    from metricshuffle.files import read_text
    from metricshuffle.spaces import Categories, Space, Tree

    rows = [[cell.strip() for cell in row] for row in csv.reader(read_text(path).splitlines()) if any(cell.strip() for cell in row)]
    place: dict[str, int] = {}
    for number_of, row in enumerate(rows, start=1):
        if not 1 <= len(row) <= 3 or not row[0] or row[0] in place:
            raise InputError(
                f"--tree {path}, row {number_of}: give a label of its own, its parent (empty for the root) and a length, comma between."
            )
        place[row[0]] = len(place)
    parents, lengths = [], []
    for number_of, row in enumerate(rows, start=1):
        parent = row[1] if len(row) > 1 else ""
        if parent and parent not in place:
            raise InputError(f"--tree {path}, row {number_of}: the parent {parent[:40]!r} is no label of this file.")
        parents.append(place[parent] if parent else -1)
        try:
            lengths.append(number(row[2]) if len(row) > 2 and row[2] else 1.0)
        except ValueError:
            raise InputError(f"--tree {path}, row {number_of}: the length {row[2][:40]!r} is not a finite number.") from None
    if len(place) < 2:
        raise InputError(f"--tree {path} names {len(place)} labels; at least two are needed.")
    return Space(Categories(list(place)), Tree(parents, lengths))

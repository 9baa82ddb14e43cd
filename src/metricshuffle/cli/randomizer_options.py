"""The randomizers that `metricshuffle amplify` knows by name, and which options each of them takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricshuffle.cli.shared_options import choice
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.amplification.amplify import Amplification

# name -> (options that must be given, options that may be)
RANDOMIZER_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "generic": (("local-epsilon",), ("local-delta",)),
    "krr": (("options", "local-epsilon"), ()),
    "metric": (("distance", "reach"), ("rate", "reach-other")),
    "laplace": (("low", "high", "rate"), ("steps", "distance")),
    "witch-hat": (("half-width", "local-epsilon", "rate"), ("steps", "distance")),
    "gaussian": (("span", "sigma"), ("margin", "distance")),
    "hadamard": (("options", "local-epsilon"), ()),
    "subset": (("options", "local-epsilon"), ("size",)),
    "hash": (("options", "local-epsilon"), ("buckets",)),
    "channel": (("matrix",), ("local-epsilon", "pair")),
}
NAMES = tuple(RANDOMIZER_OPTIONS)
FILE_PREFIX = "file:"
"""Before the path of a randomizer that was saved."""
# name -> what its privacy parameters are called: one of them may be left out, to be found
PRIVACY_PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("generic", "krr", "hadamard", "subset", "hash"), ("local-epsilon",)),
    **dict.fromkeys(("metric", "laplace"), ("rate",)),
    "witch-hat": ("local-epsilon", "rate"),
    "channel": (),
}


def options_for(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Options that must be given, and those that may be; a saved randomizer has all but the distance in its file."""
    return ((), ("distance",)) if name.startswith(FILE_PREFIX) else RANDOMIZER_OPTIONS[name]


POSITIVE_OPTIONS = ("local-epsilon", "rate", "half-width", "sigma")
MIN_VALUES = {"options": 2, "size": 1, "steps": 1, "buckets": 2, "span": 1, "margin": 0}
MAX_LOCAL_EPSILON = 700.0
"""A report of a larger local epsilon hides nothing that a double could tell."""
LINE_STEPS, HAT_STEPS = 64, 32
REPORTED_RELATIVE_CHANGE = 1e-9
"""An entry of a matrix may change by this fraction before anything is said: as much as the sum of a row may be off."""


def check_name(randomizer: str) -> None:
    """One of the names, or a file."""
    if not randomizer.startswith(FILE_PREFIX):
        choice("randomizer", randomizer, NAMES)


@dataclass(frozen=True)
class Rounded:
    """The entry of a typed matrix that changed most (relative to what was typed) when it became multiples of 2^-63."""

    row: int
    column: int
    typed: float
    sampled: float

    @property
    def relative_change(self) -> float:
        return abs(self.sampled - self.typed) / self.typed

    @property
    def sentence(self) -> str:
        return (
            "The matrix was rounded to multiples of 2^-63 in rows that sum to 1: "
            f"row {self.row}, column {self.column} (counting from 0) is {self.typed:.6g} as typed and {self.sampled:.6g} after that, "
            f"a relative change of {self.relative_change:.2g}. The rounded matrix is what is sampled here and what these numbers are "
            "about; they do not hold for reports drawn by the typed one."
        )


@dataclass(frozen=True)
class RandomizerOptions:
    """A name and the values of its options (None: left out)."""

    name: str
    values: dict[str, Any]

    def with_option(self, option: str, value: float) -> RandomizerOptions:
        """The same with another value of one option."""
        return RandomizerOptions(self.name, {**self.values, option: value})

    def check(self, found: str = "") -> None:
        """Refuse what is missing (but for what is to be found), what belongs to another randomizer, and numbers that cannot be."""
        needed, allowed = options_for(self.name)
        for option in needed:
            if self.values[option] is None and option != found:
                raise InputError(f"--randomizer {self.name} needs --{option}, which is missing.")
        for option, value in self.values.items():
            if value is not None and option not in (*needed, *allowed):
                allowed_names = ", ".join(f"--{name}" for name in (*needed, *allowed))
                raise InputError(f"--{option} does not belong to --randomizer {self.name}, which takes {allowed_names}; leave it out.")
            if value is not None and option in POSITIVE_OPTIONS and not value > 0:
                raise InputError(f"--{option} must be greater than 0, got {value:g}.")
            if value is not None and option in MIN_VALUES and value < MIN_VALUES[option]:
                raise InputError(f"--{option} must be a whole number >= {MIN_VALUES[option]}, got {value}.")
            if value is not None and option == "local-epsilon" and value > MAX_LOCAL_EPSILON:
                raise InputError(f"--local-epsilon must be at most {MAX_LOCAL_EPSILON:g}, got {value:g}.")
            if value is not None and option == "local-delta" and not 0.0 <= value < 1.0:
                raise InputError(f"--local-delta must lie in [0, 1), got {value:g}.")
        if self.name == "laplace" and found != "rate":
            local_epsilon = self.values["rate"] * (self.values["high"] - self.values["low"])
            if local_epsilon > MAX_LOCAL_EPSILON:
                raise InputError(
                    f"--rate times the length from --low to --high is at most {MAX_LOCAL_EPSILON:g}, got {local_epsilon:g}; lower --rate."
                )
        if self.values["pair"] is not None and self.values["pair"][0] == self.values["pair"][1]:
            raise InputError(f"--pair must be two different rows, got {self.values['pair'][0]} twice: nothing tells a row from itself.")

    @property
    def distance(self) -> float | None:
        """How far apart the inputs may be that are asked about; None for any two."""
        return None if self.name == "metric" else self.values["distance"]

    def amplification(self, users: int, honest: str | None, rounds: int, relative: float | None = None) -> Amplification:
        """Both bounds for that many users."""
        from metricshuffle.amplification.amplify import amplify, amplify_generic, amplify_metric

        value = self.values
        if self.name == "generic":
            return amplify_generic(value["local-epsilon"], users, honest, rounds=rounds, delta=value["local-delta"] or 0.0)
        if self.name == "metric":
            rate = 1.0 if value["rate"] is None else value["rate"]
            return amplify_metric(rate, value["distance"], value["reach"], value["reach-other"], users=users, honest=honest, rounds=rounds)
        return amplify(self.randomizer(), users, honest, rounds=rounds, relative=relative)

    def randomizer(self) -> Any:
        """The randomizer itself, if the name stands for one."""
        from metricshuffle import randomizers as known

        if self.name.startswith(FILE_PREFIX):
            return self._saved
        value = self.values
        optional = {name: value[name] for name in ("size", "buckets") if value[name] is not None}
        if self.name == "laplace":
            return known.LaplaceOnInterval(value["low"], value["high"], value["rate"], value["steps"] or LINE_STEPS)
        if self.name == "witch-hat":
            return known.WitchHat(value["half-width"], value["local-epsilon"], value["rate"], value["steps"] or HAT_STEPS)
        if self.name == "gaussian":
            return known.DiscreteGaussian(value["span"], value["sigma"], value["margin"])
        if self.name == "channel":
            return _channel(self._matrix_rows, value["local-epsilon"], value["pair"])
        by_options = {
            "krr": known.KaryRandomizedResponse, "hadamard": known.HadamardResponse,
            "subset": known.SubsetSelection, "hash": known.LocalHash,
        }  # fmt: skip
        return by_options[self.name](value["options"], value["local-epsilon"], **optional)

    @cached_property
    def _saved(self) -> Any:
        from metricshuffle.solving.randomizer_files import load_randomizer

        return load_randomizer(self.name.removeprefix(FILE_PREFIX))

    @cached_property
    def _matrix_rows(self) -> list[list[float]]:
        """Read once: the file may be a pipe."""
        return rows_of_numbers(self.values["matrix"])

    @cached_property
    def rounded(self) -> Rounded | None:
        """How the matrix that is accounted for differs from the one that was typed, if it does so noticeably."""
        if self.name != "channel":
            return None
        import numpy as np

        typed, sampled = np.array(self._matrix_rows), self.randomizer().rows()
        changed = np.abs(sampled - typed) / np.where(typed > 0.0, typed, 1.0)  # what is 0 stays 0
        row, column = (int(place) for place in np.unravel_index(int(np.argmax(changed)), typed.shape))
        if not changed[row, column] > REPORTED_RELATIVE_CHANGE:
            return None
        return Rounded(row, column, float(typed[row, column]), float(sampled[row, column]))

    @property
    def remark(self) -> str:
        """What has to be said beside every number about it; empty if there is nothing."""
        return "" if self.rounded is None else self.rounded.sentence


def _channel(typed: list[list[float]], claimed: float | None, pair: tuple[int, int] | None) -> Any:
    from metricshuffle.amplification.channel_pair import ChannelPair
    from metricshuffle.randomizers import Channel

    channel = Channel(typed, claimed)
    if pair is None:
        return channel
    for row in pair:
        if not 0 <= row < channel.inputs:
            raise InputError(f"--pair counts rows from 0 to {channel.inputs - 1}, got {row}.")
    return ChannelPair(channel.matrix, *pair)


def rows_of_numbers(path: Path, option: str = "--matrix") -> list[list[float]]:
    """The numbers of a CSV file without a header."""
    rows: list[list[float]] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{option} {path} is not a text file; give a CSV of numbers.") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append([float(cell) for cell in line.split(",")])
        except ValueError:
            raise InputError(
                f"{option} {path}, line {number}: {line.strip()[:60]!r} is not a row of numbers separated by commas."
            ) from None
        for cell, value in zip(line.split(","), rows[-1], strict=True):
            if value == 0.0 and any(digit in "123456789" for digit in cell.lower().partition("e")[0]):
                raise InputError(
                    f"{option} {path}, line {number}: {cell.strip()[:60]} is too small for a number here; write 0 or a larger one."
                )
        if len(rows[-1]) != len(rows[0]):
            raise InputError(f"{option} {path}, line {number} has {len(rows[-1])} numbers, but the first row has {len(rows[0])}.")
    if len(rows) < 2:
        what = "labels" if option == "--distances" else "inputs"
        raise InputError(f"{option} {path} needs a row for each of at least two {what}, got {len(rows)}.")
    return rows

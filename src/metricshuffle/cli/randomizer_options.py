"""The randomizers that `metricshuffle amplify` knows by name, and their options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from metricshuffle.cli.shared_options import choice
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.amplification.amplify import Amplification
    from metricshuffle.randomizers import Randomizer
    from metricshuffle.spaces import Matrix

# name -> (required options, optional ones)
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
    "rappor": (("options", "local-epsilon"), ()),
    "exponential": (("rate",), ("distances", "low", "high", "steps", "distance")),
    "pem": (("rate",), ("distances", "low", "high", "steps", "distance")),
    "gkrr": (("clusters", "leaves", "inner", "rate"), ("distance",)),
    "duchi": (("dimensions", "local-epsilon"), ()),
    "harmony": (("dimensions", "local-epsilon"), ()),
    "privset": (("options", "items", "local-epsilon"), ("size",)),
    "privkv": (("keys", "key-epsilon", "value-epsilon"), ("items",)),
    "channel": (("matrix",), ("local-epsilon", "pair")),
}
NAMES = tuple(RANDOMIZER_OPTIONS)
OPTIONS = tuple(
    {option: None for row in RANDOMIZER_OPTIONS.values() for options in row for option in options}
)
"""The options of all randomizers, each listed once."""
FILE_PREFIX = "file:"
"""Prefix of the path of a saved randomizer."""
# name -> its privacy parameters; one of them may be left out, and is then searched for
PRIVACY_PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("generic", "krr", "hadamard", "subset", "hash"), ("local-epsilon",)),
    **dict.fromkeys(("rappor", "duchi", "harmony", "privset"), ("local-epsilon",)),
    **dict.fromkeys(("metric", "laplace", "exponential", "pem", "gkrr"), ("rate",)),
    "witch-hat": ("local-epsilon", "rate"),
    "channel": (),
}


def options_for(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return required and optional options; a saved randomizer takes only a distance."""
    return ((), ("distance",)) if name.startswith(FILE_PREFIX) else RANDOMIZER_OPTIONS[name]


EPSILON_OPTIONS = ("local-epsilon", "key-epsilon", "value-epsilon")
POSITIVE_OPTIONS = (*EPSILON_OPTIONS, "rate", "half-width", "sigma", "inner")
MIN_VALUES = {
    "options": 2,
    "size": 1,
    "steps": 1,
    "buckets": 2,
    "span": 1,
    "margin": 0,
    "clusters": 2,
    "leaves": 2,
    "dimensions": 1,
    "keys": 1,
    "items": 1,
}
MAX_LOCAL_EPSILON = 700.0
"""A larger local epsilon cannot be distinguished from no privacy in double precision."""
REPORTED_RELATIVE_CHANGE = 1e-9
"""Relative changes of entries up to this are not reported; it equals the tolerance of row sums."""


def check_name(randomizer: str) -> None:
    """Raise unless it is a known name or a file."""
    if not randomizer.startswith(FILE_PREFIX):
        choice("randomizer", randomizer, NAMES)


@dataclass(frozen=True)
class Rounded:
    """The matrix entry with the largest relative change by rounding to multiples of 2^-63."""

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
            f"row {self.row}, column {self.column} (counting from 0) is {self.typed:.6g} "
            f"as typed and {self.sampled:.6g} after that, "
            f"a relative change of {self.relative_change:.2g}. The rounded matrix is "
            "sampled here, and the numbers hold for it, not for reports drawn by the typed one."
        )


@dataclass(frozen=True)
class RandomizerOptions:
    """Name of a randomizer and the values of its options (None: left out)."""

    name: str
    values: dict[str, Any]

    def with_option(self, option: str, value: float) -> RandomizerOptions:
        """Return a copy with another value of one option."""
        return RandomizerOptions(self.name, {**self.values, option: value})

    def check(self, sought: str = "") -> None:
        """Raise for missing options (except `sought`), foreign options and invalid numbers."""
        needed, allowed = options_for(self.name)
        for option in needed:
            if self.values[option] is None and option != sought:
                raise InputError(f"--randomizer {self.name} needs --{option}, which is missing.")
        for option, value in self.values.items():
            if value is not None and option not in (*needed, *allowed):
                allowed_names = ", ".join(f"--{name}" for name in (*needed, *allowed))
                raise InputError(
                    f"--{option} does not belong to --randomizer {self.name}, which takes "
                    f"{allowed_names}; leave it out."
                )
            if value is not None and option in POSITIVE_OPTIONS and not value > 0:
                raise InputError(f"--{option} must be greater than 0, got {value:g}.")
            if value is not None and option in MIN_VALUES and value < MIN_VALUES[option]:
                raise InputError(
                    f"--{option} must be a whole number >= {MIN_VALUES[option]}, got {value}."
                )
            if value is not None and option in EPSILON_OPTIONS and value > MAX_LOCAL_EPSILON:
                raise InputError(
                    f"--{option} must be at most {MAX_LOCAL_EPSILON:g}, got {value:g}."
                )
            if value is not None and option == "local-delta" and not 0.0 <= value < 1.0:
                raise InputError(f"--local-delta must lie in [0, 1), got {value:g}.")
        if "distances" in allowed:
            self._check_points()
        if self.name == "laplace" and sought != "rate":
            local_epsilon = self.values["rate"] * (self.values["high"] - self.values["low"])
            if local_epsilon > MAX_LOCAL_EPSILON:
                raise InputError(
                    "--rate times the length from --low to --high is at most "
                    f"{MAX_LOCAL_EPSILON:g}, got {local_epsilon:g}; lower --rate."
                )
        if self.values["pair"] is not None and self.values["pair"][0] == self.values["pair"][1]:
            raise InputError(
                f"--pair must be two different rows, got {self.values['pair'][0]} twice: "
                "a row cannot be distinguished from itself."
            )

    def _check_points(self) -> None:
        """Raise unless the points of the randomizer are either in a table or on a line."""
        on_line = [name for name in ("low", "high", "steps") if self.values[name] is not None]
        if self.values["distances"] is not None and on_line:
            raise InputError(
                f"--distances is a table of all distances; leave --{on_line[0]} out, or give "
                "--low and --high for points on a line instead."
            )
        if self.values["distances"] is None and not {"low", "high"} <= {*on_line}:
            raise InputError(
                f"--randomizer {self.name} needs --distances FILE, or --low and --high for "
                "points on a line."
            )

    @property
    def distance(self) -> float | None:
        """Largest distance between the two inputs; None if they may be any two."""
        return None if self.name == "metric" else self.values["distance"]

    def amplification(
        self, users: int, honest: str | None, rounds: int, relative: float | None = None
    ) -> Amplification:
        """Compute both bounds for this many users."""
        from metricshuffle.amplification.amplify import amplify, amplify_generic, amplify_metric
        from metricshuffle.amplification.named_randomizers import option_names

        value = self.values
        if self.name == "generic":
            return amplify_generic(
                value["local-epsilon"],
                users,
                honest,
                rounds=rounds,
                delta=value["local-delta"] or 0.0,
            )
        if self.name == "metric":
            rate = 1.0 if value["rate"] is None else value["rate"]
            return amplify_metric(
                rate,
                value["distance"],
                value["reach"],
                value["reach-other"],
                users=users,
                honest=honest,
                rounds=rounds,
            )
        with option_names(self.name):
            return amplify(self.randomizer(), users, honest, rounds=rounds, relative=relative)

    def randomizer(self) -> Randomizer:
        """Build the randomizer with that name and these options."""
        from metricshuffle.amplification.named_randomizers import build_randomizer

        if self.name.startswith(FILE_PREFIX):
            return self._saved
        if self.name == "channel":
            return _channel(self._matrix_rows, self.values["local-epsilon"], self.values["pair"])
        table = None if self.values["distances"] is None else self._table
        return build_randomizer(self.name, {**self.values, "distances": table})

    @cached_property
    def _saved(self) -> Randomizer:
        from metricshuffle.solving.randomizer_files import load_randomizer

        return load_randomizer(self.name.removeprefix(FILE_PREFIX))

    @cached_property
    def _matrix_rows(self) -> list[list[float]]:
        """Rows of the file, read once because it may be a pipe."""
        from metricshuffle.cli.number_table import rows_of_numbers

        return rows_of_numbers(self.values["matrix"])

    @cached_property
    def _table(self) -> Matrix:
        """Distances of the file, read once because it may be a pipe."""
        from metricshuffle.amplification.named_randomizers import MAX_POINTS
        from metricshuffle.cli.label_distances import read_distance_table

        table = read_distance_table(self.values["distances"])
        if len(table.distances) > MAX_POINTS:
            raise InputError(
                f"--distances {self.values['distances']} has {len(table.distances):,} points, "
                f"but `amplify` takes at most {MAX_POINTS}; leave points out."
            )
        return table

    @cached_property
    def rounded(self) -> Rounded | None:
        """The largest change of the typed matrix by rounding; None if it is too small to report."""
        if self.name != "channel":
            return None
        import numpy as np

        typed = np.array(self._matrix_rows)
        sampled = self.randomizer().rows()
        changed = np.abs(sampled - typed) / np.where(typed > 0.0, typed, 1.0)  # zeros stay zero
        row, column = (
            int(place) for place in np.unravel_index(int(np.argmax(changed)), typed.shape)
        )
        if not changed[row, column] > REPORTED_RELATIVE_CHANGE:
            return None
        return Rounded(row, column, float(typed[row, column]), float(sampled[row, column]))

    @property
    def remark(self) -> str:
        """Remark that belongs to every number about the randomizer; empty if there is none."""
        return "" if self.rounded is None else self.rounded.sentence


def _channel(
    typed: list[list[float]], claimed: float | None, pair: tuple[int, int] | None
) -> Randomizer:
    from metricshuffle.randomizers import Channel
    from metricshuffle.randomizers.channel import ChannelPair

    channel = Channel(typed, claimed)
    if pair is None:
        return channel
    for row in pair:
        if not 0 <= row < channel.inputs:
            raise InputError(f"--pair counts rows from 0 to {channel.inputs - 1}, got {row}.")
    return ChannelPair(channel.matrix, *pair)

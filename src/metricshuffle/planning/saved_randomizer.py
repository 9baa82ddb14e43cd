"""A randomizer in a file of its own: the JSON object that tasks hold, with its `kind`."""

from __future__ import annotations

from pathlib import Path

from metricshuffle.declared import parsed
from metricshuffle.errors import InputError, PlanError
from metricshuffle.files import read_text, write_text
from metricshuffle.protocols.frequencies import known_randomizers
from metricshuffle.randomizers.randomizer import Randomizer


def save_randomizer(randomizer: Randomizer, path: str | Path) -> None:
    """Write it, so that `load_randomizer` reads the very same law back."""
    write_text(path, randomizer.model_dump_json() + "\n")


def load_randomizer(path: str | Path) -> Randomizer:
    """The randomizer in a file; what is damaged, or is something else, is refused in a sentence that names the file."""
    known_randomizers()
    try:
        found = Randomizer.of_kind(parsed(read_text(path), "a randomizer"))
    except PlanError as wrong:
        raise PlanError(f"cannot use {path}: {wrong}") from None
    except (InputError, TypeError, ArithmeticError) as wrong:
        raise InputError(f"cannot use {path}: {wrong}") from None
    if not isinstance(found, Randomizer):
        raise InputError(f"cannot use {path}: a randomizer is a JSON object with a kind, as `metricshuffle solve --save` writes it.")
    return found

"""A randomizer in a file of its own: the JSON object that tasks hold, with its `kind`."""

from __future__ import annotations

from pathlib import Path

from metricshuffle.errors import InputError, PlanError
from metricshuffle.files import read_text, write_text
from metricshuffle.models import parse_json
from metricshuffle.protocols.frequencies import known_randomizers
from metricshuffle.randomizers.randomizer import Randomizer


def save_randomizer(randomizer: Randomizer, path: str | Path) -> None:
    """Write it, so that `load_randomizer` reads the very same law back."""
    write_text(path, randomizer.model_dump_json() + "\n")


def load_randomizer(path: str | Path) -> Randomizer:
    """The randomizer in a file; what is damaged, or is something else, is refused in a sentence that names the file."""
    known_randomizers()
    try:
        randomizer = Randomizer.of_kind(parse_json(read_text(path), "a randomizer"))
    except PlanError as error:
        raise PlanError(f"cannot use {path}: {error}") from None
    except (InputError, TypeError, ArithmeticError) as error:
        raise InputError(f"cannot use {path}: {error}") from None
    if not isinstance(randomizer, Randomizer):
        raise InputError(f"cannot use {path}: a randomizer is a JSON object with a kind, as `metricshuffle solve --save` writes it.")
    return randomizer

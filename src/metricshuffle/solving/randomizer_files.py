"""Files with one randomizer: the JSON object with its `kind`, as stored in tasks."""

from __future__ import annotations

from pathlib import Path

from metricshuffle.errors import InputError, PlanError
from metricshuffle.files import read_text, write_text
from metricshuffle.models import parse_json
from metricshuffle.protocols.frequencies import known_randomizers
from metricshuffle.randomizers.randomizer import Randomizer


def save_randomizer(randomizer: Randomizer, path: str | Path) -> None:
    """Write a randomizer to a file, from which `load_randomizer` reads exactly the same law."""
    write_text(path, randomizer.model_dump_json() + "\n")


def load_randomizer(path: str | Path) -> Randomizer:
    """Read a randomizer from a file; invalid content raises an error that names the file."""
    known_randomizers()
    try:
        randomizer = Randomizer.of_kind(parse_json(read_text(path), "a randomizer"))
    except PlanError as error:
        raise PlanError(f"cannot use {path}: {error}") from None
    except (InputError, TypeError, ArithmeticError) as error:
        raise InputError(f"cannot use {path}: {error}") from None
    if not isinstance(randomizer, Randomizer):
        raise InputError(
            f"cannot use {path}: a randomizer is a JSON object with a kind, as "
            "`metricshuffle solve --save` writes it."
        )
    return randomizer

"""Generate docs/randomizers.md: every local randomizer with parameters and a small example."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from metricshuffle import randomizers
from metricshuffle.citations import PAPERS, STATEMENTS
from metricshuffle.numerics.rounding import format_epsilon
from metricshuffle.randomizers import Channel, Randomizer
from metricshuffle.randomizers.table_randomizer import TableRandomizer

_LINE = [[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]
_CHANNEL = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]
# A small instance of each, as source text that is printed on the page.
EXAMPLES: dict[str, tuple[Any, ...]] = {
    "BinaryRandomizedResponse": (1.0,),
    "BoundedGeometric": (10, 0.5),
    "Channel": (_CHANNEL,),
    "ClusteredResponse": (3, 4, 0.25, 2.0),
    "DiscreteGaussian": (4, 1.0),
    "Duchi": (3, 1.0),
    "ExponentialMechanism": (_LINE, 1.0),
    "HadamardResponse": (10, 1.0),
    "Harmony": (3, 1.0),
    "KaryRandomizedResponse": (10, 1.0),
    "LaplaceOnInterval": (0.0, 1.0, 2.0, 16),
    "LocalHash": (10, 1.0),
    "PaddedExponential": (_LINE, 1.0),
    "PckvGrr": (3, 2, 1.0),
    "PlanarGeometric": (4, 3, 0.5),
    "PrivKV": (3, 0.5, 0.5),
    "Rappor": (6, 1.0),
    "SubsetExponential": (6, 2, 1.0),
    "SubsetSelection": (10, 1.0),
    "WitchHat": (1.0, 2.0, 4.0, 16),
}
OTHERS = ("AmongDummies",)


def randomizers_page() -> str:
    """Return the whole page as Markdown."""
    examples = {
        name: getattr(randomizers, name)(*arguments) for name, arguments in EXAMPLES.items()
    }
    missing = set(randomizers.__all__) - set(examples) - {*OTHERS, "Randomizer"}
    if missing:
        raise KeyError(
            f"docs/randomizers.md needs an example of {', '.join(sorted(missing))}; add it "
            "to EXAMPLES."
        )
    lines = [
        "# The randomizers",
        "",
        "Generated from the code by `make docs`. Each is a class of "
        "`metricshuffle.randomizers`, takes the parameters shown, and can be",
        "given to `ms.amplify`. All probabilities are exact: they are those of the "
        "sampler, in multiples of a power of two, not those of",
        "an ideal it approximates. Local epsilon is what one report alone gives away about "
        "the worst pair of inputs, rounded up.",
        "",
        "The numbers in the table are those of the small instance named below each "
        "heading; a report is one of so many codes, and takes so",
        "many bits. The accountant either has a closed form for the reports of a pair of "
        "inputs, or goes through the table of all inputs'",
        "probabilities, which has at most 2^24 entries.",
        "",
        "| randomizer | inputs | reports | bits | local epsilon | estimates | accounted by |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, randomizer in examples.items():
        numbers = (
            f"{randomizer.inputs:,}",
            f"{randomizer.outputs:,}",
            str((randomizer.outputs - 1).bit_length()),
            format_epsilon(randomizer.local_epsilon()),
        )
        cells = (
            f"[{name}](#{name.lower()})",
            *numbers,
            _estimates(randomizer),
            _accounted(randomizer),
        )
        lines.append("| " + " | ".join(cells) + " |")
    for name, randomizer in examples.items():
        lines += ["", f"## {name}", *_section(name, type(randomizer), EXAMPLES[name])]
    for name in OTHERS:
        lines += ["", f"## {name}", *_section(name, getattr(randomizers, name), None)]
    return "\n".join(lines) + "\n"


def _section(name: str, kind: type, arguments: tuple[Any, ...] | None) -> Iterator[str]:
    yield from ("", f"`{name}({', '.join(_parameters(kind))})`")
    for paragraph in inspect.cleandoc(kind.__doc__ or "").split("\n\n"):
        yield from ("", " ".join(paragraph.split()))
    for statement in sorted(_statements(kind)):
        yield from ("", f"Law: {PAPERS[statement]}")
    if arguments is not None:
        yield from (
            "",
            f"In the table: `{name}({', '.join(repr(argument) for argument in arguments)})`.",
        )


def _parameters(kind: type) -> Iterator[str]:
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.name != "kind":
            plain = parameter.default in (inspect.Parameter.empty, None)
            yield parameter.name if plain else f"{parameter.name}={parameter.default!r}"


def _statements(kind: type) -> set[str]:
    """Papers whose statements this class implements."""
    own = f"{kind.__module__}.{kind.__qualname__}."
    return {
        statement.paper for statement in STATEMENTS.values() if statement.function.startswith(own)
    } - {"metricshuffle"}


def _estimates(randomizer: Randomizer) -> str:
    targets = np.asarray(randomizer.targets())
    columns = int(targets.shape[1])
    if columns >= randomizer.inputs and np.array_equal(
        targets[:, columns - randomizer.inputs :], np.eye(randomizer.inputs)
    ):
        return (
            "share of each input" if columns == randomizer.inputs else "mean, share of each input"
        )
    return "mean" if columns == 1 else f"{columns} totals"


def _accounted(randomizer: Randomizer) -> str:
    return "table" if isinstance(randomizer, Channel | TableRandomizer) else "closed form"

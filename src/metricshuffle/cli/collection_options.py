"""Options of the commands by which an operator opens and watches collections, and who that operator is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import whole
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.collection.operator.control_api import Operator

TOKEN_VARIABLE = "METRICSHUFFLE_TOKEN"  # noqa: S105 - the name of a variable

CollectionFile = Annotated[Path, typer.Argument(metavar="COLLECTION", help="The file that `metricshuffle collection open` wrote.")]
Servers = Annotated[
    list[str],
    typer.Option(
        "--server", metavar="URL",
        help="The shuffler as people reach it: https://shuffler.example; several times for a chain, in the order of travel.",
    ),
]  # fmt: skip
KeyFolders = Annotated[
    list[Path] | None,
    typer.Option("--keys", metavar="FOLDER", help="The keys folder of the shuffler, for the operator's token; once for each of a chain."),
]
TokenFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--token-file", metavar="FILE",
        help=f"A file with the operator's token, instead of --keys; {TOKEN_VARIABLE} is looked at if neither is given.",
    ),
]  # fmt: skip
AnalystPublic = Annotated[
    str,
    typer.Option("--analyst", metavar="PUBLIC", help="The public half of the analyst's key, as `metricshuffle analyst key` printed it."),
]
AskedBy = Annotated[str, typer.Option("--asked-by", metavar="NAME", help="Who the analyst is, as people are told.")]
RunBy = Annotated[
    list[str] | None, typer.Option("--run-by", metavar="NAME", help="Who runs the shuffler, as people are told; once for each of a chain.")
]
Closes = Annotated[
    str,
    typer.Option(
        "--closes",
        metavar="TIME",
        help="When it is sealed, by itself: 90s, 10m, 1h or 2d after it opens, or a time like 2030-01-31T12:00:00Z.",
    ),
]
Opens = Annotated[str, typer.Option("--opens", metavar="TIME", help="When reports are taken from, likewise; at once if left out.")]
Extends = Annotated[
    str | None,
    typer.Option(
        "--extends", metavar="TIME",
        help="How long it stays open if there are too few reports at the closing time, from then on or a time; not at all if left out.",
    ),
]  # fmt: skip
Colluders = Annotated[
    int,
    typer.Option(
        "--colluders", parser=whole, metavar="M",
        help="How many of those who report may work with the analyst, or may not be people; so many more reports are needed.",
    ),
]  # fmt: skip
Round = Annotated[int, typer.Option("--round", parser=whole, metavar="K", help="Which of the planned rounds this is, from 1.")]
AdmissionWord = Annotated[
    str, typer.Option("--admission", metavar="open|tickets", help="Who may report: anybody, or whoever has one of the tickets.")
]
Tickets = Annotated[int | None, typer.Option("--tickets", parser=whole, metavar="N", help="How many tickets to make (for each part).")]
TicketsFile = Annotated[
    Path | None,
    typer.Option("--tickets-file", metavar="FILE", help="Where the tickets go, one a line; written before anything is opened."),
]
Split = Annotated[
    int,
    typer.Option(
        "--split", parser=whole, metavar="K",
        help="Open K collections, each with its own minimum; a liar spoils one of them. Files are numbered: collection-1.json and so on.",
    ),
]  # fmt: skip
Delay = Annotated[str, typer.Option("--delay", metavar="TIME", help="A client waits a random part of this before it sends.")]
Retention = Annotated[str, typer.Option("--retention", metavar="TIME", help="How long what was released waits for the analyst.")]
SamePerson = Annotated[
    bool,
    typer.Option("--same-person", help="Operator and analyst are one person, or work together; people and the release are told so."),
]


def make_operators(servers: Sequence[str], keys: Sequence[Path] | None, token_files: Sequence[Path] | None) -> list[Operator]:
    """Who may command each of the shufflers, in their order."""
    from metricshuffle.collection.operator.control_api import Operator

    tokens = _tokens(list(keys or ()), list(token_files or ()))
    if len(tokens) != len(servers):
        needed = "a token" if len(servers) == 1 else f"a token for each of the {len(servers)} shufflers, in their order"
        raise InputError(f"the operator needs {needed}: give --keys FOLDER or --token-file FILE, or set {TOKEN_VARIABLE}.")
    return [Operator(server, token) for server, token in zip(servers, tokens, strict=True)]


def _tokens(keys: list[Path], token_files: list[Path]) -> list[str]:
    from metricshuffle.collection.keys import KeyFolder
    from metricshuffle.files import check_private, read_text

    if keys and token_files:
        raise InputError("give --keys or --token-file, and not both: their order would not be known.")
    for folder in keys:
        if not (folder / "operator.token").is_file():
            raise InputError(f"--keys {folder} has no operator's token in it; metricshuffle serve makes one.")
    tokens = [KeyFolder(folder).token for folder in keys] or [read_text(file).strip() for file in token_files]
    if not tokens and os.environ.get(TOKEN_VARIABLE):
        tokens = os.environ[TOKEN_VARIABLE].split()
    if not all(token.isascii() and token.isalnum() for token in tokens):
        raise InputError("an operator's token is letters and digits; this is something else.")
    for file in token_files:
        check_private(file, "the operator's token")
    return tokens


def numbered_path(path: Path, part: int, parts: int) -> Path:
    """collection.json as it is, or collection-2.json for the second of several parts."""
    return path if parts == 1 else path.with_name(f"{path.stem}-{part}{path.suffix}")

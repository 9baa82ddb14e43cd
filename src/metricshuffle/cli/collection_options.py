"""Options of the operator's commands, and the operator's token."""

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

CollectionFile = Annotated[
    Path,
    typer.Argument(metavar="COLLECTION", help="File that `metricshuffle collection open` wrote."),
]
Servers = Annotated[
    list[str],
    typer.Option(
        "--server",
        metavar="URL",
        help=(
            "Address of the shuffler, like https://shuffler.example; for a chain, repeat it in "
            "the order reports take."
        ),
    ),
]
Addresses = Annotated[
    list[str] | None,
    typer.Option(
        "--address",
        metavar="URL",
        help=(
            "Address at which people and analyst reach the shuffler, if it is not that of "
            "--server: of a proxy before it, or before its edges; for a chain, repeat it for each "
            "shuffler."
        ),
    ),
]
OwnServers = Annotated[
    list[str] | None,
    typer.Option(
        "--server",
        metavar="URL",
        help=(
            "Address at which the operator reaches the shuffler, if it is not that of the "
            "collection; for a chain, repeat it for each shuffler."
        ),
    ),
]
ObliviousHttp = Annotated[
    bool,
    typer.Option(
        "--oblivious",
        help=(
            "Let participants also send through a relay (Oblivious HTTP, RFC 9458), so that the "
            "shuffler does not learn their addresses."
        ),
    ),
]
KeyFolders = Annotated[
    list[Path] | None,
    typer.Option(
        "--keys",
        metavar="FOLDER",
        help=(
            "Keys folder of the shuffler, which contains the operator's token; for a chain, "
            "repeat it for each shuffler."
        ),
    ),
]
TokenFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help=(
            f"File with the operator's token, instead of --keys; {TOKEN_VARIABLE} in the "
            "environment if neither is given."
        ),
    ),
]
AnalystPublic = Annotated[
    str,
    typer.Option(
        "--analyst",
        metavar="PUBLIC",
        help="Public half of the analyst's key, as `metricshuffle analyst key` printed it.",
    ),
]
AskedBy = Annotated[
    str,
    typer.Option("--asked-by", metavar="NAME", help="Name of the analyst, shown to participants."),
]
RunBy = Annotated[
    list[str] | None,
    typer.Option(
        "--run-by",
        metavar="NAME",
        help=(
            "Name of the shuffler's operator, shown to participants; for a chain, repeat it "
            "for each shuffler."
        ),
    ),
]
Closes = Annotated[
    str,
    typer.Option(
        "--closes",
        metavar="TIME",
        help=(
            "Closing time: 90s, 10m, 1h or 2d after the collection opens, or a time like "
            "2030-01-31T12:00:00Z."
        ),
    ),
]
Opens = Annotated[
    str,
    typer.Option(
        "--opens",
        metavar="TIME",
        help=(
            "Time from which reports are accepted, in the same form as --closes; at once if "
            "left out."
        ),
    ),
]
Extends = Annotated[
    str | None,
    typer.Option(
        "--extends",
        metavar="TIME",
        help=(
            "How long to stay open after --closes if reports are too few, as a duration or "
            "a time; not at all if left out."
        ),
    ),
]
Colluders = Annotated[
    int,
    typer.Option(
        "--colluders",
        parser=whole,
        metavar="M",
        help=(
            "Number of reports that may be fake or come from people who collude with the "
            "analyst; as many more are required."
        ),
    ),
]
Round = Annotated[
    int,
    typer.Option(
        "--round",
        parser=whole,
        metavar="K",
        help="Number of this round among the planned ones, from 1.",
    ),
]
AdmissionWord = Annotated[
    str,
    typer.Option(
        "--admission",
        metavar="open|tickets|tokens",
        help=(
            "Who may report: everybody (open), only people with a ticket (tickets), or only "
            "people with a token of another party, the issuer (tokens)."
        ),
    ),
]
IssuerFile = Annotated[
    Path | None,
    typer.Option(
        "--issuer",
        metavar="FILE",
        help="Public file of the issuer of tokens, with a key for this collection alone.",
    ),
]
Tickets = Annotated[
    int | None,
    typer.Option(
        "--tickets",
        parser=whole,
        metavar="N",
        help="Number of tickets to make; with --split, for each part.",
    ),
]
TicketsFile = Annotated[
    Path | None,
    typer.Option(
        "--tickets-file",
        metavar="FILE",
        help=("File for the tickets, one per line; it is written before the collection is opened."),
    ),
]
Split = Annotated[
    int,
    typer.Option(
        "--split",
        parser=whole,
        metavar="K",
        help=(
            "Open K collections in numbered files (collection-1.json, ...), each with its "
            "own minimum, so that a false report spoils only one."
        ),
    ),
]
Delay = Annotated[
    str,
    typer.Option(
        "--delay",
        metavar="TIME",
        help="Longest time that a client waits before it sends a report; the wait is random.",
    ),
]
Retention = Annotated[
    str,
    typer.Option(
        "--retention", metavar="TIME", help="How long released messages are stored for the analyst."
    ),
]
SamePerson = Annotated[
    bool,
    typer.Option(
        "--same-person",
        help=(
            "State that operator and analyst are one person or work together; shown to "
            "participants and in the release."
        ),
    ),
]


def make_operators(
    servers: Sequence[str],
    keys: Sequence[Path] | None,
    token_files: Sequence[Path] | None,
    addresses: Sequence[str] = (),
) -> list[Operator]:
    """Return the operator of each shuffler, in order; `addresses` are public ones, if any."""
    from metricshuffle.collection.operator.control_api import Operator

    tokens = _tokens(list(keys or ()), list(token_files or ()))
    if len(tokens) != len(servers):
        needed = (
            "a token"
            if len(servers) == 1
            else f"a token for each of the {len(servers)} shufflers, in their order"
        )
        raise InputError(
            f"the operator needs {needed}: give --keys FOLDER or --token-file FILE, or set "
            f"{TOKEN_VARIABLE}."
        )
    public = addresses or [""] * len(servers)
    return [Operator(*parts) for parts in zip(servers, tokens, public, strict=True)]


def _tokens(keys: list[Path], token_files: list[Path]) -> list[str]:
    from metricshuffle.collection.keys import KeyFolder
    from metricshuffle.files import check_private, read_text

    if keys and token_files:
        raise InputError(
            "give --keys or --token-file, and not both: their order would not be known."
        )
    for folder in keys:
        if not (folder / "operator.token").is_file():
            raise InputError(
                f"--keys {folder} has no operator's token in it; metricshuffle serve makes one."
            )
    tokens = [KeyFolder(folder).token for folder in keys] or [
        read_text(file).strip() for file in token_files
    ]
    if not tokens and os.environ.get(TOKEN_VARIABLE):
        tokens = os.environ[TOKEN_VARIABLE].split()
    if not all(token.isascii() and token.isalnum() for token in tokens):
        raise InputError("an operator's token must consist of letters and digits.")
    for file in token_files:
        check_private(file, "the operator's token")
    return tokens


def numbered_path(path: Path, part: int, parts: int) -> Path:
    """Return the path, with -2 before the ending for the second of several parts."""
    return path if parts == 1 else path.with_name(f"{path.stem}-{part}{path.suffix}")

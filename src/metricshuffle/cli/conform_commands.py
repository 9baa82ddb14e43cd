"""`metricshuffle conform`: check vectors, servers and clients against the specification."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.shared_options import Json

if TYPE_CHECKING:
    from metricshuffle.collection.conformance.requirements import ConformanceLine

conform = typer.Typer(
    help=(
        "Check an implementation of the collection service against docs/spec: one line for "
        "each numbered requirement, and exit code 1 if one is not met."
    ),
    no_args_is_help=True,
)

VectorFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder of vectors: docs/spec/vectors.")
]
CollectionAddress = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="Address of a collection: https://.../v1/collections/DIGEST."
    ),
]
Send = Annotated[
    bool,
    typer.Option(
        "--send",
        help="Also store reports of random content; only for a collection made for this test.",
    ),
]
TicketFile = Annotated[
    Path | None,
    typer.Option(
        "--ticket-file",
        metavar="FILE",
        help=(
            "File with two unused tickets, one a line, if the collection asks for tickets; with "
            "two tokens in hexadecimal digits, if it asks for tokens."
        ),
    ),
]
ClientCommand = Annotated[
    list[str],
    typer.Argument(
        metavar="COMMAND",
        help=(
            "Command of the client, after --. {address}, {digest}, {outbox} and {value} in it "
            "are replaced; it ends with exit code 0 if the report is stored."
        ),
    ),
]


@conform.command("vectors")
def conform_vectors(folder: VectorFolder, as_json: Json = False) -> None:
    """Check this implementation against the vectors of the specification."""
    from metricshuffle.collection.conformance.vector_checks import check_vectors

    _print_lines(check_vectors(folder), as_json)


@conform.command("server")
def conform_server(
    url: CollectionAddress,
    send: Send = False,
    ticket_file: TicketFile = None,
    as_json: Json = False,
) -> None:
    """Check a shuffler through the calls of one collection.

    Without --send nothing is stored. Run it again after the closing time to check what is answered
    then.
    """
    from metricshuffle.collection.adder.sum_terms import without_sums
    from metricshuffle.collection.client.http_client import (
        fetch_collection,
        parse_collection_address,
        run_sync,
    )
    from metricshuffle.collection.client.report_builder import parse_ticket
    from metricshuffle.collection.conformance.server_checks import check_server
    from metricshuffle.collection.sealed_boxes import TICKET_BYTES
    from metricshuffle.files import read_bytes

    address, digest = parse_collection_address(url, None)
    [collection] = without_sums([run_sync(fetch_collection(address, digest))])
    lines = [] if ticket_file is None else read_bytes(ticket_file).split()
    size = collection.terms.ticket or TICKET_BYTES
    tickets = [parse_ticket(line, size) for line in lines]
    _print_lines(check_server(address, collection, is_sending=send, tickets=tickets), as_json)


@conform.command("client")
def conform_client(command: ClientCommand, as_json: Json = False) -> None:
    """Run a client against shufflers that misbehave: 503, 410, another key or digest, slow ones.

    For example: metricshuffle conform client -- metricshuffle submit {address} --digest {digest}
    --outbox {outbox} --value {value}
    """
    from metricshuffle.collection.conformance.client_checks import check_client

    _print_lines(check_client(command), as_json)


def _print_lines(lines: Iterable[ConformanceLine], as_json: bool) -> None:
    """Print the lines, and end with exit code 1 if a requirement is not met."""
    import json
    from dataclasses import asdict

    results = list(lines)
    if as_json:
        print(json.dumps({"lines": [asdict(line) for line in results]}))
    else:
        for line in results:
            detail = f" [{line.detail}]" if line.detail else ""
            print(f"{line.requirement.number:<4} {line.result:<8} {line.requirement.text}{detail}")
    if any(line.result == "failed" for line in results):
        raise typer.Exit(1)

"""`metricshuffle submit`: take part in a collection, for oneself or for everybody in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.options import Json, ReadingOptions, bundled, number
from metricshuffle.errors import InputError, MetricShuffleError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from metricshuffle.columns import Table, Wanted
    from metricshuffle.queries.base import Query
    from metricshuffle.queries.rows import Rows
    from metricshuffle.service.client import Client
    from metricshuffle.service.crowd import Crowd
    from metricshuffle.service.submitting import Submitted

PATIENCE = 60.0


CollectionGiven = Annotated[
    str, typer.Argument(metavar="COLLECTION", help="The file that `metricshuffle collection open` wrote, or the address of a collection.")
]
ManyValues = Annotated[
    Path | None, typer.Argument(metavar="VALUES", help="A CSV or Parquet file with the values of many people; a pipe, or -.")
]
OwnValue = Annotated[
    list[str] | None,
    typer.Option(
        "--value", metavar="V",
        help="Your own value instead of a file; a place as LATITUDE,LONGITUDE (or X,Y); several times for several items of yours.",
    ),
]  # fmt: skip
User = Annotated[str, typer.Option("--user", metavar="NAME", help="Who you are, for the outbox only, if several people use it.")]
Ticket = Annotated[str | None, typer.Option("--ticket", metavar="T", help="Your ticket, where the collection asks for one.")]
TicketsFile = Annotated[Path | None, typer.Option("--tickets-file", metavar="FILE", help="Tickets for everybody in VALUES, one in a line.")]
OtherParts = Annotated[
    list[str] | None,
    typer.Option("--part", metavar="COLLECTION", help="The other parts of a split, once for each: everybody draws one of all parts."),
]
OutboxFile = Annotated[
    Path | None,
    typer.Option(
        "--outbox", metavar="FILE",
        help="Where sealed reports are kept until they are stored; submissions.outbox beside COLLECTION if left out.",
    ),
]  # fmt: skip
Resend = Annotated[bool, typer.Option("--resend", help="Send what waits in the outbox, and nothing new.")]
PinnedDigest = Annotated[
    str | None, typer.Option("--digest", metavar="SHA256", help="The digest that was published; another collection is refused.")
]
Believe = Annotated[bool, typer.Option("--believe", help="Do not recompute the collection's guarantees first.")]
Patience = Annotated[
    float, typer.Option("--patience", parser=number, metavar="SECONDS", help="How long a shuffler that does not answer is asked again.")
]


def submit(
    collection: CollectionGiven,
    reading: ReadingOptions,
    values: ManyValues = None,
    value: OwnValue = None,
    user: User = "",
    ticket: Ticket = None,
    tickets_file: TicketsFile = None,
    part: OtherParts = None,
    outbox: OutboxFile = None,
    resend: Resend = False,
    digest: PinnedDigest = None,
    believe: Believe = False,
    patience: Patience = PATIENCE,
    as_json: Json = False,
) -> None:
    """Take part: verify the collection, randomize, seal, write down, and send until it is stored. Nothing but sealed reports leaves.

    Exit code 0: all reports are stored. The same command again sends what is missing, and never randomizes anybody's value again.
    """
    if sum((values is not None, bool(value), resend)) != 1:
        raise InputError("give --value with your own value, or a file with the values of many people, or --resend; one of these three.")
    if (ticket is not None and not value) or (tickets_file is not None and values is None) or (user and not value):
        raise InputError("--ticket and --user belong to --value, and --tickets-file to a file of values.")
    import json

    from metricshuffle.cli.extras import require_extras, require_for_places
    from metricshuffle.cli.screen import note, rows_are_people, say, screen, working
    from metricshuffle.files import completed
    from metricshuffle.service.client import Client
    from metricshuffle.service.sending import waited

    require_extras("client")
    if outbox is None and collection.startswith(("http://", "https://")):
        raise InputError("name a file with --outbox, in which sealed reports are kept until they are stored.")
    with Client([collection, *(part or [])], outbox, believe, digest=digest, patience=patience) as client:
        require_for_places(client.task.query)
        tickets = client.checked_tickets([ticket] if ticket is not None else tickets_in(tickets_file))
        if not believe:
            with working("Verifying"):
                client.verify()
        if delay := client.collections[0].terms.delay:
            note(f"Every report waits a random part of {delay:,} seconds before it is sent, as this collection asks for.")
        remarks: list[str] = []
        with working("Submitting") as tell:
            if resend:
                done = waited(client.resend_async(tell=tell))
            else:
                crowd, remarks = _crowd(client, values, value or [], user, reading, tell)
                completed.append(str(client.outbox.path))  # what is told if it is interrupted
                done = waited(client.submit_crowd(crowd, tickets, tell=tell))
        note(*remarks)
        if as_json:
            print(json.dumps(_document(client, done)), flush=True)
        elif done.complete:
            say(screen(), str(done) if done.people else "No report waits in the outbox.")
        if not done.complete:
            raise NotAllStored(f"{done} The same command again sends what is missing, or --resend.")
        if values is not None and not as_json:
            rows_are_people(reading.user_column)


class NotAllStored(MetricShuffleError):
    """Some reports were not acknowledged."""


def _document(client: Client, done: Submitted) -> dict[str, object]:
    counts = {name: getattr(done, name) for name in ("people", "stored", "already", "late", "refused", "waiting")}
    return {**counts, "collections": [collection.digest for collection in client.collections], "outbox": str(client.outbox.path)}


def _crowd(
    client: Client, values: Path | None, value: list[str], user: str, reading: ReadingOptions, tell: Callable[[str], None]
) -> tuple[Crowd, list[str]]:
    """Whose values there are, all of them read and checked, and what is to be told about that."""
    from metricshuffle.cli.values import rows_of
    from metricshuffle.service.crowd import Crowd, crowd_of_rows, file_hash, rereadable

    task = client.task
    if values is None:
        rows = typed_rows(value, task.query, reading)
        crowd = crowd_of_rows(task, lambda: client.outbox, rows)
        return Crowd(crowd.inputs, [client.outbox.user(user)]), list(rows.remarks)
    if not reading.column:
        raise InputError("name the column of the file that holds the values, --column.")
    with rereadable(values) as path:
        rows = rows_of(path, task.query, reading)
        return crowd_of_rows(task, lambda: client.outbox, rows, file_hash(path), tell), rows.remarks


def typed_rows(typed: list[str], query: Query, reading: ReadingOptions) -> Rows:
    """What was typed after --value, read in the same way as a file."""
    import csv
    import io
    from dataclasses import replace

    from metricshuffle.columns.csv_files import CsvFormat, open_csv
    from metricshuffle.queries.rows import Rows
    from metricshuffle.spaces import Grid

    if reading.column or reading.user_column or reading.per_user or reading.no_header or reading.delimiter:
        raise InputError("--column, --user-column, --per-user, --delimiter and --no-header are for files; leave them out beside --value.")
    if len(typed) > 1 and query.items is None:
        raise InputError(f"a {query.title} takes one value a person, and --value was given {len(typed)} times.")
    apart, columns = (";" if reading.decimal == "," else ","), ["value"]
    if isinstance(query.values_in, Grid):
        columns = ["first", "second"]
        if any(text.count(apart) != 1 for text in typed):
            raise InputError(f"a place is two numbers with {apart!r} between them, like --value 46.95,7.44; got {typed[0]!r:.60}.")
    fields = [text.split(apart) if len(columns) == 2 else [text] for text in typed]
    user_column = "user" if query.items is not None else None
    text = io.StringIO()
    csv.writer(text, delimiter="\t").writerows([["user", *columns], *(["you", *row] for row in fields)])
    data, form = text.getvalue().encode(), replace(CsvFormat.of(None, reading.decimal, no_header=False), delimiter="\t")

    def opened(wanted: Sequence[Wanted]) -> Table:
        return open_csv(io.BytesIO(data), data[:4], "--value", tuple(wanted), form)

    where = {"coordinates": reading.coordinates, "clamp": reading.clamp, "decimal": reading.decimal}
    return Rows.of(opened, query, columns, user_column=user_column, **where)  # type: ignore[arg-type]


def tickets_in(path: Path | None) -> list[str]:
    """The tickets of a file, one in a line."""
    if path is None:
        return []
    from metricshuffle.files import read_text

    tickets = read_text(path).split()
    if len(set(tickets)) != len(tickets):
        raise InputError(f"a ticket stands twice in {path}; everybody has one of her own.")
    return tickets


submit = bundled(submit, column=None)

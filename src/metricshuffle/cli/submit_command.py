"""`metricshuffle submit`: take part in a collection, for yourself or for many people in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.cli.column_completion import complete_labels
from metricshuffle.cli.device_budget import agrees
from metricshuffle.cli.shared_options import Json, ReadingOptions, number, with_reading_options
from metricshuffle.errors import InputError, MetricShuffleError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from metricshuffle.collection.client.batch_submission import Submitted
    from metricshuffle.collection.client.client import Client
    from metricshuffle.collection.client.participants import Participants
    from metricshuffle.data import ColumnRequest, ColumnSource
    from metricshuffle.data.rows import Rows
    from metricshuffle.queries.query import Query

RETRY_SECONDS = 60.0
STDIN = "-"


CollectionGiven = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTION",
        help=(
            "File that `metricshuffle collection open` wrote, or the web address of a collection."
        ),
    ),
]
ManyValues = Annotated[
    Path | None,
    typer.Argument(
        metavar="VALUES",
        help=(
            "CSV or Parquet file with the values of many people, or a pipe; - reads standard input."
        ),
    ),
]
OwnValue = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="V",
        autocompletion=complete_labels,
        help=(
            "Your own value instead of a file (a place as LATITUDE,LONGITUDE or X,Y; repeat "
            "for several items). It shows in the shell history and the process list; - "
            "reads it from standard input, one per line."
        ),
    ),
]
User = Annotated[
    str,
    typer.Option(
        "--user",
        metavar="NAME",
        help=(
            "Your name in the outbox, which is not sent; required if several people share "
            "an outbox, who otherwise count as one."
        ),
    ),
]
Ticket = Annotated[
    str | None,
    typer.Option(
        "--ticket",
        metavar="T",
        help=(
            "Your ticket, if the collection requires one; it remains in the shell history, "
            "so prefer --ticket-file."
        ),
    ),
]
TicketsFile = Annotated[
    Path | None,
    typer.Option(
        "--ticket-file",
        "--tickets-file",
        metavar="FILE",
        help=(
            "File with your ticket, or with one ticket per line for the people in VALUES; - "
            "is standard input."
        ),
    ),
]
OtherParts = Annotated[
    list[str] | None,
    typer.Option(
        "--part",
        metavar="COLLECTION",
        help=(
            "Another part of a split, repeated for each; every person is assigned to one of "
            "all parts at random."
        ),
    ),
]
OutboxFile = Annotated[
    Path | None,
    typer.Option(
        "--outbox",
        metavar="FILE",
        help=(
            "File that stores sealed reports until the shuffler has them; "
            "submissions.outbox in the folder of COLLECTION if left out."
        ),
    ),
]
AskToken = Annotated[
    bool,
    typer.Option(
        "--ask-token",
        help=(
            "Ask the collection's issuer for your token with your ticket, and send no report yet: "
            "the longer the time between, the less both can tell from it."
        ),
    ),
]
Resend = Annotated[
    bool,
    typer.Option("--resend", help="Send the reports that wait in the outbox, and no new ones."),
]
Decline = Annotated[
    bool,
    typer.Option(
        "--decline",
        help=(
            "Delete your unsent report from the outbox and make none for this round; exit "
            "code 0: nothing was sent."
        ),
    ),
]
RelayAddress = Annotated[
    str,
    typer.Option(
        "--relay",
        metavar="URL",
        help=(
            "Send through a relay of another party (Oblivious HTTP), so that the shuffler does not "
            "learn your address; COLLECTION must be a file, unless --gateway is given."
        ),
    ),
]
GatewayOfCollection = Annotated[
    str,
    typer.Option(
        "--gateway",
        metavar="KEY",
        help="Published key of the collection's gateway, to fetch the collection through --relay.",
    ),
]
PinnedDigest = Annotated[
    str | None,
    typer.Option(
        "--digest",
        metavar="SHA256",
        help=("Published digest of the collection; a collection with another digest is rejected."),
    ),
]
Believe = Annotated[
    bool, typer.Option("--believe", help="Skip the recomputation of the collection's guarantees.")
]
Patience = Annotated[
    float,
    typer.Option(
        "--patience",
        parser=number,
        metavar="SECONDS",
        help="How many seconds to retry if the shuffler does not answer.",
    ),
]

OverLimits = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="Take part even if that goes over a limit set by `metricshuffle budget --limit`.",
    ),
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
    decline: Decline = False,
    ask_token: AskToken = False,
    digest: PinnedDigest = None,
    believe: Believe = False,
    patience: Patience = RETRY_SECONDS,
    over_limit: OverLimits = False,
    relay: RelayAddress = "",
    gateway: GatewayOfCollection = "",
    as_json: Json = False,
) -> None:
    """Take part: verify the collection, randomize, seal and send. Only sealed reports are sent.

    Reports are stored in the outbox and sent until the shuffler has stored them; exit code 0 means
    that all are stored. The same command again sends what is missing and never randomizes a value
    again. If you have already reported and give --value again, the exit code is 2 and nothing is
    sent, whatever the value is.
    """
    _check_options(values, value, user, ticket, tickets_file, resend, decline, ask_token)
    import json

    from metricshuffle.cli.console import note, note_rows_are_people, say, screen, show_progress
    from metricshuffle.cli.extras import require_extras, require_for_places
    from metricshuffle.collection.client.batch_submission import already_reported_text
    from metricshuffle.collection.client.client import Client
    from metricshuffle.collection.client.http_client import run_sync
    from metricshuffle.files import completed
    from metricshuffle.tasks.wording import wording_lines_or_notice

    require_extras("client")
    value = read_typed_lines() if value == [STDIN] else value
    if outbox is None and collection.startswith(("http://", "https://")):
        raise InputError(
            "name a file with --outbox, which keeps sealed reports until the shuffler has them."
        )
    with Client(
        [collection, *(part or [])],
        outbox,
        believe,
        digest=digest,
        patience=patience,
        relay=relay,
        gateway=gateway,
    ) as client:
        require_for_places(client.task.query)
        tickets = client.checked_tickets(
            [ticket] if ticket is not None else read_tickets(tickets_file)
        )
        if decline:
            _decline(client, user)
            return
        if not believe:
            with show_progress("Verifying"):
                client.verify()
        _note_issuer(client, with_relay=bool(relay))
        if ask_token:
            _ask_tokens(client, user, tickets)
            return
        _note_delay(client)
        remarks: list[str] = []
        participants: Participants | None = None
        if not resend:
            with show_progress("Reading") as progress:
                participants, remarks = _read_participants(
                    client, values, value or [], user, reading, progress
                )
            note(*wording_lines_or_notice(client.task.title, client.task.question))
        if participants is None:
            with show_progress("Submitting") as progress:
                done = run_sync(client.resend_async(tell=progress))
        else:
            completed.append(str(client.outbox.path))  # an interruption message names it
            done = _submit_within_limits(client, participants, tickets, over_limit)
        note(*remarks)
        if as_json:
            print(json.dumps(_document(client, done)), flush=True)
        elif done.complete and not (value and done.already):
            say(screen(), str(done) if done.people else "No report waits in the outbox.")
        if value and done.answers[0].before:
            raise NotAllStored(
                already_reported_text(done.answers[0], client.outbox.path, user, "--user NAME")
            )
        _note_unused_values(bool(value), reading.user_column, done)
        if not done.complete:
            raise NotAllStored(f"{done} The same command again sends what is missing, or --resend.")
        if values is not None and not as_json:
            note_rows_are_people(reading.user_column)


def _note_issuer(client: Client, *, with_relay: bool) -> None:
    """Say who learns that a person takes part, if the collection has tokens."""
    from metricshuffle.cli.console import note

    if issuer := client.collections[0].terms.issuer:
        note(
            f"{issuer.url} learns that you take part, and when you ask for a token; neither it "
            "nor the shuffler learns which report is yours from the token. Together they may tell "
            + ("by time." if with_relay else "by your address, and by time; see --relay.")
        )


def _note_delay(client: Client) -> None:
    """Say that reports wait, if they do."""
    from metricshuffle.cli.console import note

    if delay := client.collections[0].terms.delay:
        note(
            f"Every report waits a random part of {delay:,} seconds before it is sent, "
            "as this collection asks for."
        )


def _submit_within_limits(
    client: Client, participants: Participants, tickets: Sequence[bytes], over_limit: bool
) -> Submitted:
    """Submit; over a limit, only after a yes."""
    from metricshuffle.cli.console import show_progress
    from metricshuffle.collection.client.device_ledger import OverLimit
    from metricshuffle.collection.client.http_client import run_sync

    try:
        with show_progress("Submitting") as progress:
            return run_sync(
                client.submit_crowd(participants, tickets, tell=progress, over_limit=over_limit)
            )
    except OverLimit as over:
        if not agrees(f"{over.sentences}\nTake part all the same?", yes=False):
            raise
    return _submit_within_limits(client, participants, tickets, True)


class NotAllStored(MetricShuffleError):
    """Some reports were not acknowledged."""


def _check_options(
    values: Path | None,
    value: list[str] | None,
    user: str,
    ticket: str | None,
    tickets_file: Path | None,
    resend: bool,
    decline: bool,
    ask_token: bool,
) -> None:
    """Raise for options that cannot be combined, before anything is read."""
    if sum((values is not None, bool(value), resend, decline, ask_token)) != 1:
        raise InputError(
            "give --value with your own value, or a file with the values of many people, "
            "or --resend, or --decline, or --ask-token; one of these five."
        )
    if (ticket is not None and not (value or ask_token)) or (
        tickets_file is not None and not (value or ask_token) and values is None
    ):
        raise InputError(
            "--ticket belongs to --value or --ask-token, and --ticket-file to these or to a file "
            "of values."
        )
    if user and not (value or decline or ask_token):
        raise InputError("--user belongs to --value, --decline or --ask-token.")
    if ticket is not None and tickets_file is not None:
        raise InputError("give --ticket or --ticket-file, not both.")
    if [str(values), *(value or []), str(tickets_file)].count(STDIN) > 1 or (
        value and STDIN in value and len(value) > 1
    ):
        raise InputError(
            "standard input is read once: give - once, and --value - by itself, with a "
            "line for each of your items."
        )


def read_typed_lines() -> list[str]:
    """Read values from standard input, one per line."""
    import sys

    lines = [line.strip() for line in sys.stdin.read().splitlines() if line.strip()]
    if not lines:
        raise InputError(
            "--value - reads your value from standard input, and nothing is written there."
        )
    return lines


def _ask_tokens(client: Client, user: str, tickets: Sequence[bytes]) -> None:
    """Ask the issuer for the token of one person."""
    from metricshuffle.cli.console import say, screen
    from metricshuffle.collection.client.http_client import NotStored

    if len(tickets) != 1:
        raise InputError("--ask-token needs your ticket, --ticket-file FILE with one line.")
    try:
        client.ask_token(tickets[0], user)
    except NotStored as error:
        raise NotAllStored(str(error)) from None
    say(screen(), f"Your token is in {client.outbox.path}; the same command with --value sends.")


def _decline(client: Client, user: str) -> None:
    from metricshuffle.cli.console import say, screen

    if not client.decline(user):
        raise NotAllStored(
            "The report may have been sent before it was declined now; it is not sent "
            "again, and none is made for that round."
        )
    who = f"the user {user!r}" if user else "whoever uses this outbox without --user"
    say(
        screen(),
        f"Nothing was sent, and nothing will be, for {who}: the waiting report is deleted, "
        "and no report is made for that round.",
    )


def _note_unused_values(is_own: bool, user_column: str | None, done: Submitted) -> None:
    """Note that values given now were not used because reports already exist."""
    from metricshuffle.cli.console import note
    from metricshuffle.collection.client.batch_submission import RESUMED_MESSAGE

    if is_own and done.resumed:
        note(f"{RESUMED_MESSAGE} If you are somebody else, name yourself with --user.")
    elif user_column is not None and (before := done.already + done.resumed):
        people = f"{before:,} {'people' if before != 1 else 'person'}"
        note(
            f"Reports of {people} were made before; the values that were given for them now "
            "are not used."
        )


def _document(client: Client, done: Submitted) -> dict[str, object]:
    counts = {
        name: getattr(done, name)
        for name in (
            "people",
            "stored",
            "already",
            "resumed",
            "late",
            "refused",
            "waiting",
            "declined",
        )
    }
    return {
        **counts,
        "collections": [collection.digest for collection in client.collections],
        "outbox": str(client.outbox.path),
    }


def _read_participants(
    client: Client,
    values: Path | None,
    value: list[str],
    user: str,
    reading: ReadingOptions,
    progress: Callable[[str], None],
) -> tuple[Participants, list[str]]:
    """Read and check all values; return the participants and remarks."""
    from metricshuffle.cli.input_rows import rows_of
    from metricshuffle.collection.client.participants import (
        Participants,
        as_rereadable_file,
        hash_file,
        participants_from_rows,
    )

    task = client.task
    if values is None:
        rows = rows_from_options(value, task.query, reading)
        participants = participants_from_rows(task, lambda: client.outbox, rows)
        return Participants(participants.inputs, [client.outbox.user(user)]), list(rows.remarks)
    if not reading.column:
        raise InputError("name the column of the file that holds the values, --column.")
    with as_rereadable_file(values) as path:
        rows = rows_of(path, task.query, reading)
        return participants_from_rows(
            task, lambda: client.outbox, rows, hash_file(path), progress
        ), rows.remarks


def rows_from_options(typed: list[str], query: Query, reading: ReadingOptions) -> Rows:
    """Read the values typed after --value in the same way as a file."""
    import csv
    import io
    from dataclasses import replace

    from metricshuffle.cli.input_rows import reading_arguments
    from metricshuffle.data.csv_reader import CsvFormat, open_csv
    from metricshuffle.data.rows import Rows
    from metricshuffle.spaces import Grid, LabelledNumbers, NumberRows, Places, ZonePairs, Zones

    if (
        reading.column
        or reading.user_column
        or reading.per_user
        or reading.no_header
        or reading.delimiter
    ):
        raise InputError(
            "--column, --user-column, --per-user, --delimiter and --no-header are for "
            "files; leave them out beside --value."
        )
    if len(typed) > 1 and query.items is None:
        raise InputError(
            f"a {query.title} takes one value a person, and --value was given {len(typed)} times."
        )
    apart = ";" if reading.decimal == "," else ","
    columns = ["value"]
    zones = query.values_in
    by_place = isinstance(zones, Zones) and not set(typed) & set(zones.ids)
    if isinstance(zones, Grid | Places) or (by_place and all(apart in text for text in typed)):
        columns = ["first", "second"]
        if any(text.count(apart) != 1 for text in typed):
            raise InputError(
                f"a place is two numbers with {apart!r} between them, like --value "
                f"46.95,7.44; got {typed[0]!r:.60}."
            )
    if isinstance(query.values_in, LabelledNumbers):
        columns = ["label", "number"]
        if any(apart not in text for text in typed):
            raise InputError(
                f"an answer is a label and a number with {apart!r} between them, like --value "
                f"{query.values_in.labels.labels[0]}{apart}3; got {typed[0]!r:.60}."
            )
    # A label may contain the separator, a number does not.
    fields = [text.rsplit(apart, 1) if len(columns) == 2 else [text] for text in typed]
    if isinstance(query.values_in, ZonePairs):
        fields = [text.split(apart) for text in typed]
        columns = [f"part {number}" for number in range(len(fields[0]))]
        if len(columns) not in (2, 4):
            raise InputError(
                f"a trip is two ids of zones with {apart!r} between them, or four degrees; got "
                f"{typed[0]!r:.60}."
            )
    if isinstance(query.values_in, NumberRows):
        columns = [f"number {place}" for place in range(len(query.values_in.columns))]
        fields = [text.split(apart) for text in typed]
        if any(len(row) != len(columns) for row in fields):
            raise InputError(
                f"an answer is {len(columns):,} numbers with {apart!r} between them, in the order "
                f"of {', '.join(query.values_in.columns[:5])}; got {typed[0]!r:.60}."
            )
    user_column = "user" if query.items is not None else None
    text = io.StringIO()
    csv.writer(text, delimiter="\t").writerows(
        [["user", *columns], *(["you", *row] for row in fields)]
    )
    data = text.getvalue().encode()
    form = replace(CsvFormat.of(None, reading.decimal, no_header=False), delimiter="\t")

    def opened(wanted: Sequence[ColumnRequest]) -> ColumnSource:
        return open_csv(io.BytesIO(data), data[:4], "--value", tuple(wanted), form)

    options = replace(
        reading, column=columns, user_column=user_column, drop_missing=False, drop_outside=False
    )
    return Rows.of(opened, query, decimal=reading.decimal, **reading_arguments(options))


def read_tickets(path: Path | None) -> list[str]:
    """Read tickets from a file, one per line."""
    if path is None:
        return []
    import sys

    from metricshuffle.files import read_text

    tickets = (sys.stdin.read() if str(path) == STDIN else read_text(path)).split()
    if len(set(tickets)) != len(tickets):
        raise InputError(f"{path} contains a ticket twice; every person needs another ticket.")
    return tickets


submit = with_reading_options(submit, column=None)

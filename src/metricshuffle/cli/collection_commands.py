"""`metricshuffle collection`: the operator's commands."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from metricshuffle.cli.clock_command import clock
from metricshuffle.cli.collection_options import (
    AdmissionWord,
    AnalystPublic,
    AskedBy,
    Closes,
    CollectionFile,
    Colluders,
    Delay,
    Extends,
    KeyFolders,
    Opens,
    Retention,
    Round,
    RunBy,
    SamePerson,
    Servers,
    Split,
    Tickets,
    TicketsFile,
    TokenFiles,
    make_operators,
    numbered_path,
)
from metricshuffle.cli.shared_options import Json, PlanFile, choice, load_task, writable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricshuffle.collection.operator.control_api import Opening, Operator
    from metricshuffle.collection.terms import Admission, Collection

ABOUT = """Collections of sealed reports: open one at a shuffler, see how it stands, abort it, purge it.

There is no command for sealing: a collection is sealed at its closing time, by itself, and only with enough reports."""

collection = typer.Typer(rich_markup_mode="rich", no_args_is_help=False)


@collection.callback(invoke_without_command=True, help=ABOUT)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def open_collection(
    plan_file: PlanFile,
    server: Servers,
    analyst: AnalystPublic,
    closes: Closes,
    colluders: Colluders,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where the collection goes, which is public.")],
    opens: Opens = "0s",
    extends: Extends = None,
    round: Round = 1,
    admission: AdmissionWord = "open",
    tickets: Tickets = None,
    tickets_file: TicketsFile = None,
    split: Split = 1,
    delay: Delay = "0s",
    retention: Retention = "30d",
    asked_by: AskedBy = "",
    run_by: RunBy = None,
    same_person: SamePerson = False,
    keys: KeyFolders = None,
    token_file: TokenFiles = None,
    as_json: Json = False,
) -> None:
    """Operator: open a collection of a plan. The file that is written is public, and its digest is what people compare.

    Reports are taken until the closing time. It is sealed then if the honest reports that the plan counts on and the colluders are there;
    otherwise it stays open until --extends, and is aborted after that.
    """
    import time

    from metricshuffle.collection.keys import analyst_of
    from metricshuffle.collection.operator.control_api import Opening, parse_duration_option, parse_time_option
    from metricshuffle.collection.shuffler.server import validate_address
    from metricshuffle.errors import InputError

    task, now = load_task(plan_file), time.time()
    choice("admission", admission, ("open", "tickets"))
    if (admission == "tickets") != (tickets is not None) or (tickets is None) != (tickets_file is None):
        raise InputError("--admission tickets, --tickets N and --tickets-file FILE belong together: give all of them, or none.")
    opening_time = parse_time_option(opens, now, "--opens")
    closing_time = parse_time_option(closes, opening_time, "--closes")
    opening = Opening(
        task=task,
        analyst=analyst_of(analyst, asked_by),
        colluders=colluders,
        opens=opening_time,
        closes=closing_time,
        extends=closing_time if extends is None else parse_time_option(extends, closing_time, "--extends"),
        retention=parse_duration_option(retention, "--retention"),
        delay=parse_duration_option(delay, "--delay"),
        round=round,
        parts=split,
        admission=cast("Admission", admission),
        tickets=tickets or 0,
        apart=not same_person,
    )
    servers = [validate_address(address, "--server") for address in server]
    names = list(run_by or [""] * len(servers))
    if len(names) != len(servers):
        raise InputError(f"--run-by must be given once for each --server, {len(servers)} times.")
    files = _files(plan_file, output, tickets_file, split)
    _show_opened(_opened(opening, make_operators(servers, keys, token_file), names, files), as_json)


def _files(plan_file: Path, output: Path, tickets_file: Path | None, parts: int) -> list[tuple[Path, Path | None]]:
    """Where each part and its tickets go, if they can be written there. Tickets are never replaced: people may hold them."""
    from metricshuffle.errors import InputError

    files = []
    for part in range(1, parts + 1):
        path, tickets = numbered_path(output, part, parts), None if tickets_file is None else numbered_path(tickets_file, part, parts)
        writable(path, plan_file)
        writable(tickets, plan_file, path, option="--tickets-file")
        if tickets is not None and (tickets.exists() or tickets == path):
            raise InputError(f"--tickets-file {tickets} exists, and tickets are never replaced; give another name.")
        files.append((path, tickets))
    return files


def _opened(
    opening: Opening, operators: Sequence[Operator], names: Sequence[str], files: Sequence[tuple[Path, Path | None]]
) -> list[dict[str, Any]]:
    """Open every part, once all of them are made and verified; what was written and where."""
    from metricshuffle.cli.console import show_progress
    from metricshuffle.collection.operator.control_api import check_round_is_free

    with show_progress("Opening") as progress:
        opening.task.verify()  # nobody is to be asked for what is not kept
        check_round_is_free(operators, opening)
        collections = []
        for part in range(1, opening.parts + 1):
            progress(f"part {part} of {opening.parts}")
            hops = [operator.new_hop(name) for operator, name in zip(operators, names, strict=True)]
            collections.append(opening.collection(part, hops))
        return [
            _send_collection(opening, operators, collection_made, output, tickets_file)
            for collection_made, (output, tickets_file) in zip(collections, files, strict=True)
        ]


def _send_collection(
    opening: Opening, operators: Sequence[Operator], collection_made: Collection, output: Path, tickets_file: Path | None
) -> dict[str, Any]:
    """Tickets and the collection are on the disk before a shuffler hears of them; if one refuses, they are gone again.

    If none answers, they stay: it may be open.
    """
    from metricshuffle.collection.keys import write_secret
    from metricshuffle.collection.operator.control_api import NoAnswerError, open_at_all_hops
    from metricshuffle.errors import InputError
    from metricshuffle.files import atomic_file

    tickets, unclear = opening.new_tickets(), ""
    with ExitStack() as refused:
        if tickets_file is not None:
            write_secret(tickets_file, "".join(f"{ticket.hex()}\n" for ticket in tickets).encode())
            refused.callback(tickets_file.unlink)
        with atomic_file(output, "wb") as stream:
            stream.write(collection_made.served + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
            try:
                open_at_all_hops(operators, collection_made, tickets)
            except NoAnswerError as error:
                unclear = str(error)
        refused.pop_all()
    if unclear:
        raise InputError(
            f"{unclear} Whether the collection is open is not known; {output} is written, and collection status {output} tells."
        )
    terms, browser = collection_made.terms, collection_made.terms.recipe.get("browser", True)
    return {
        "digest": collection_made.digest,
        "output": str(output),
        "tickets_file": None if tickets_file is None else str(tickets_file),
        "join": f"{terms.hops[0].url}/join/{collection_made.digest}" if browser else None,
        "why_not_join": "" if browser else str(terms.recipe.get("why", "")),
        "minimum": terms.minimum,
        "maximum": terms.maximum,
        "opens": terms.opens,
        "closes": terms.closes,
        "extends": terms.extends,
        "round": terms.round,
        "split": list(terms.split),
        "witnesses": [{"url": hop.witness.url, "key": hop.witness.key} for hop in terms.hops if hop.witness is not None],
        "title": opening.task.title,
        "question": opening.task.question,
    }


def _show_opened(opened: Sequence[dict[str, Any]], as_json: bool) -> None:
    from metricshuffle.cli.console import note, say, screen
    from metricshuffle.tasks.wording import wording_lines

    if as_json:
        print(json.dumps(opened[0] if len(opened) == 1 else {"parts": opened}))
        return
    for summary in opened:
        part = f" (part {summary['split'][0]} of {summary['split'][1]})" if summary["split"][1] > 1 else ""
        say(
            screen(),
            f"Collection {summary['digest']}{part}",
            *(f"  {line}" for line in wording_lines(summary["title"], summary["question"])),
            f"  takes reports from {summary['opens']} to {summary['closes']}, at least {summary['minimum']:,} and at most "
            f"{summary['maximum']:,}",
            *([f"  and until {summary['extends']} if there are fewer"] if summary["extends"] != summary["closes"] else []),
            *(f"  is countersigned by the witness {witness['url']}, whose key is {witness['key']}" for witness in summary["witnesses"]),
            f"  {'can be joined at ' + summary['join'] if summary['join'] else 'is for the Python client: ' + summary['why_not_join']}",
        )
        note(f"Wrote {summary['output']}{' and ' + summary['tickets_file'] if summary['tickets_file'] else ''}.")
    if len(opened) > 1:
        note("Everybody takes part in one of the parts, drawn at random; each part needs its own minimum.")
    if opened[0]["question"] is None:
        note("This collection does not say what people are asked; a plan with --question does, on the page to take part on and elsewhere.")
    if opened[0]["tickets_file"] is None:
        note(
            f"Anybody may send reports, also a program that fills it in minutes: after {opened[0]['maximum']:,} of them everybody else is "
            "turned away. --admission tickets prevents that."
        )
    note("Publish the digest where the shuffler cannot change it.")


def status(collection_file: CollectionFile, keys: KeyFolders = None, token_file: TokenFiles = None, as_json: Json = False) -> None:
    """Operator: how a collection stands, and how many reports there are."""
    loaded, operators = _load_with_operators(collection_file, keys, token_file)
    _show([operator.status(loaded.digest) for operator in operators], loaded, as_json)


def abort(
    collection_file: CollectionFile,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; everybody can read it.")] = "no reason given",
    keys: KeyFolders = None,
    token_file: TokenFiles = None,
    as_json: Json = False,
) -> None:
    """Operator: give a collection up. Its reports and keys are destroyed, and its round is spent: people have reported."""
    loaded, operators = _load_with_operators(collection_file, keys, token_file)
    _show([operator.abort(loaded.digest, reason) for operator in operators], loaded, as_json)


def purge(collection_file: CollectionFile, keys: KeyFolders = None, token_file: TokenFiles = None, as_json: Json = False) -> None:
    """Operator: destroy what was released, after the analyst has it."""
    loaded, operators = _load_with_operators(collection_file, keys, token_file)
    _show([operator.purge(loaded.digest) for operator in operators], loaded, as_json)


def _load_with_operators(file: Path, keys: KeyFolders, token_file: TokenFiles) -> tuple[Collection, list[Operator]]:
    """The collection, and the operators of its shufflers: of all that a token was given for, from the first on."""
    from metricshuffle.collection.terms import Collection

    loaded = Collection.load(file)
    hops = [hop.url for hop in loaded.terms.hops]
    token_count = len(keys or ()) or len(token_file or ()) or 1
    return loaded, make_operators(hops[:token_count], keys, token_file)


def _show(statuses: Sequence[dict[str, Any]], loaded: Collection, as_json: bool) -> None:
    """How it stands at the first shuffler, and what the others say."""
    from metricshuffle.cli.console import say, screen
    from metricshuffle.tasks.wording import wording_lines

    first, task = statuses[0], loaded.task
    if as_json:
        first = first | {"title": task.title, "question": task.question}
        print(json.dumps(first | ({"hops": list(statuses)} if len(statuses) > 1 else {})))
        return
    say(screen(), *wording_lines(task.title, task.question))
    for status, hop in zip(statuses, loaded.terms.hops, strict=False):
        lines = [f"{loaded.digest[:16]} at {hop.url}: {status['state']}{': ' + status['reason'] if status['reason'] else ''}"]
        if status["state"] == "open":
            lines.append(
                f"  {status['reports']:,} reports of at least {status['minimum']:,}; round {status['round']}; until {status['until']}"
            )
        lines += [f"  {name} at {status[key]}" for name, key in (("sealed", "sealed_at"), ("released", "released_at")) if status.get(key)]
        lines += [f"  {note}" for note in status.get("clock", ())]
        if status["people"] is not None:
            lines.append(f"  {status['people']:,} people, and {status['left_out']:,} left out because they shared a box")
        if status["trouble"]:
            lines.append(f"  does not go on: {status['trouble']}")
        say(screen(), *lines)


for name, command in (("open", open_collection), ("status", status), ("abort", abort), ("purge", purge), ("clock", clock)):
    collection.command(name)(command)

"""`metricshuffle collection`: the operator's commands."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from metricshuffle.cli.collection_options import (
    Addresses,
    AdmissionWord,
    AnalystPublic,
    AskedBy,
    Closes,
    CollectionFile,
    Colluders,
    Delay,
    Extends,
    IssuerFile,
    KeyFolders,
    ObliviousHttp,
    Opens,
    OwnServers,
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
from metricshuffle.cli.shared_options import (
    Json,
    PlanFile,
    choice,
    command_group,
    load_task,
    writable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricshuffle.collection.adder.sum_terms import AnyCollection
    from metricshuffle.collection.operator.control_api import Opening, Operator
    from metricshuffle.collection.terms import Admission

Action = Annotated[
    str,
    typer.Argument(
        metavar="ACTION",
        help=(
            "show the clock, confirm it after a jump ahead, or correct a time that was "
            "stored while it was wrong."
        ),
    ),
]
ABOUT = """Collections of sealed reports: open one at a shuffler, show its state, abort it or purge it.

There is no command for sealing: a collection is sealed automatically at its closing time, if it has enough reports."""  # noqa: E501

collection = command_group(ABOUT)


def open_collection(
    plan_file: PlanFile,
    server: Servers,
    analyst: AnalystPublic,
    closes: Closes,
    colluders: Colluders,
    output: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", help="File for the collection, which is public."),
    ],
    opens: Opens = "0s",
    extends: Extends = None,
    round: Round = 1,
    admission: AdmissionWord = "open",
    tickets: Tickets = None,
    tickets_file: TicketsFile = None,
    issuer: IssuerFile = None,
    split: Split = 1,
    delay: Delay = "0s",
    retention: Retention = "30d",
    asked_by: AskedBy = "",
    run_by: RunBy = None,
    same_person: SamePerson = False,
    address: Addresses = None,
    oblivious: ObliviousHttp = False,
    keys: KeyFolders = None,
    token_file: TokenFiles = None,
    as_json: Json = False,
) -> None:
    """Operator: open a collection for a plan and write its public file.

    For a plan that trusts an aggregator, the servers are 2 to 5 adders (serve --role adder).

    Participants compare the digest of that file. Reports are accepted until the closing time. The
    collection is then sealed if it has enough reports: the honest ones that the plan relies on, and
    one more for each colluder. Otherwise it stays open until --extends, and is aborted if reports
    are still too few.
    """
    import time

    from metricshuffle.collection.issuer.token_issuer import read_issuer
    from metricshuffle.collection.keys import analyst_of
    from metricshuffle.collection.operator.control_api import (
        Opening,
        parse_duration_option,
        parse_time_option,
    )
    from metricshuffle.collection.shuffler.server import validate_address
    from metricshuffle.errors import InputError

    task = load_task(plan_file)
    now = time.time()
    choice("admission", admission, ("open", "tickets", "tokens"))
    if (admission == "tokens") != (issuer is not None):
        raise InputError(
            "--admission tokens and --issuer FILE belong together: give both, or none."
        )
    if (admission == "tickets") != (tickets is not None) or (tickets is None) != (
        tickets_file is None
    ):
        raise InputError(
            "--admission tickets, --tickets N and --tickets-file FILE belong together: "
            "give all of them, or none."
        )
    opening_time = parse_time_option(opens, now, "--opens")
    closing_time = parse_time_option(closes, opening_time, "--closes")
    opening = Opening(
        task=task,
        analyst=analyst_of(analyst, asked_by),
        colluders=colluders,
        opens=opening_time,
        closes=closing_time,
        extends=closing_time
        if extends is None
        else parse_time_option(extends, closing_time, "--extends"),
        retention=parse_duration_option(retention, "--retention"),
        delay=parse_duration_option(delay, "--delay"),
        round=round,
        parts=split,
        admission=cast("Admission", admission),
        tickets=tickets or 0,
        issuer=None if issuer is None else read_issuer(issuer),
        apart=not same_person,
        oblivious=oblivious,
    )
    servers = [validate_address(address, "--server") for address in server]
    names = list(run_by or [""] * len(servers))
    if len(names) != len(servers):
        raise InputError(f"--run-by must be given once for each --server, {len(servers)} times.")
    addresses = [validate_address(url, "--address") for url in address or ()]
    if len(addresses) not in (0, len(servers)):
        raise InputError(f"--address must be given once for each --server, {len(servers)} times.")
    files = _files(plan_file, output, tickets_file, split)
    operators = make_operators(servers, keys, token_file, addresses)
    _show_opened(_opened(opening, operators, names, files), as_json)


def _files(
    plan_file: Path, output: Path, tickets_file: Path | None, parts: int
) -> list[tuple[Path, Path | None]]:
    """Paths of each part and its tickets; raises if they cannot be written.

    Ticket files are never replaced, because people may hold the tickets.
    """
    from metricshuffle.errors import InputError

    files = []
    for part in range(1, parts + 1):
        path = numbered_path(output, part, parts)
        tickets = None if tickets_file is None else numbered_path(tickets_file, part, parts)
        writable(path, plan_file)
        writable(tickets, plan_file, path, option="--tickets-file")
        if tickets is not None and (tickets.exists() or tickets == path):
            raise InputError(
                f"--tickets-file {tickets} exists, and tickets are never replaced; give "
                "another name."
            )
        files.append((path, tickets))
    return files


def _opened(
    opening: Opening,
    operators: Sequence[Operator],
    names: Sequence[str],
    files: Sequence[tuple[Path, Path | None]],
) -> list[dict[str, Any]]:
    """Open every part, after all of them are made and verified; return a summary of each."""
    from metricshuffle.cli.console import show_progress
    from metricshuffle.collection.operator.control_api import check_round_is_free

    with show_progress("Opening") as progress:
        opening.check_servers(len(operators))
        opening.task.verify()  # people must not be asked under a false guarantee
        check_round_is_free(operators, opening)
        collections = []
        if opening.sums:
            adders = [
                operator.new_adder(name) for operator, name in zip(operators, names, strict=True)
            ]
            new_sum = opening.sum_collection(adders)
            [(output, tickets_file)] = files
            return [_send_collection(opening, operators, new_sum, output, tickets_file)]
        for part in range(1, opening.parts + 1):
            progress(f"part {part} of {opening.parts}")
            made = [
                operator.new_gateway_hop(name)
                for operator, name in zip(operators, names, strict=True)
            ]
            collections.append(opening.collection(part, [hop for hop, _ in made], made[0][1]))
        return [
            _send_collection(opening, operators, collection_made, output, tickets_file)
            for collection_made, (output, tickets_file) in zip(collections, files, strict=True)
        ]


def _send_collection(
    opening: Opening,
    operators: Sequence[Operator],
    collection_made: AnyCollection,
    output: Path,
    tickets_file: Path | None,
) -> dict[str, Any]:
    """Open one part at all shufflers, or a sum at all adders.

    Tickets and the collection are written to disk before any shuffler receives them. Both
    files are removed if a shuffler rejects the collection. They are kept if a shuffler does not
    answer, because the collection may be open.
    """
    from metricshuffle.collection.adder.sum_terms import SumTerms
    from metricshuffle.collection.keys import write_secret
    from metricshuffle.collection.operator.control_api import NoAnswerError, open_at_all_hops
    from metricshuffle.errors import InputError
    from metricshuffle.files import atomic_file

    tickets = opening.new_tickets()
    unclear = ""
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
            f"{unclear} The collection may be open; {output} is written, and collection status "
            f"{output} shows its state."
        )
    terms = collection_made.terms
    recipe = {} if isinstance(terms, SumTerms) else terms.recipe
    browser = recipe.get("browser", not isinstance(terms, SumTerms))
    why_not = "A browser does not send shares to several adders."
    witnesses = [] if isinstance(terms, SumTerms) else [hop.witness for hop in terms.hops]
    return {
        "digest": collection_made.digest,
        "output": str(output),
        "tickets_file": None if tickets_file is None else str(tickets_file),
        "join": f"{terms.hops[0].url}/join/{collection_made.digest}" if browser else None,
        "why_not_join": "" if browser else str(recipe.get("why", why_not)),
        "gateway": getattr(terms, "gateway", "") or None,
        "minimum": terms.minimum,
        "maximum": terms.maximum,
        "opens": terms.opens,
        "closes": terms.closes,
        "extends": terms.extends,
        "round": terms.round,
        "split": list(terms.split),
        "witnesses": [
            {"url": witness.url, "key": witness.key} for witness in witnesses if witness is not None
        ],
        "issuer": None if terms.issuer is None else terms.issuer.url,
        "delay": terms.delay,
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
        part = (
            f" (part {summary['split'][0]} of {summary['split'][1]})"
            if summary["split"][1] > 1
            else ""
        )
        say(
            screen(),
            f"Collection {summary['digest']}{part}",
            *(f"  {line}" for line in wording_lines(summary["title"], summary["question"])),
            f"  takes reports from {summary['opens']} to {summary['closes']}, at least "
            f"{summary['minimum']:,} and at most "
            f"{summary['maximum']:,}",
            *(
                [f"  and until {summary['extends']} if there are fewer"]
                if summary["extends"] != summary["closes"]
                else []
            ),
            *(
                f"  is countersigned by the witness {witness['url']}, whose key is {witness['key']}"
                for witness in summary["witnesses"]
            ),
            *(
                [f"  takes reports through relays; the key of its gateway is {summary['gateway']}"]
                if summary["gateway"]
                else []
            ),
            f"  can be joined at {summary['join']}"
            if summary["join"]
            else f"  is for the Python client: {summary['why_not_join']}",
        )
        written = [summary["output"], *filter(None, [summary["tickets_file"]])]
        note(f"Wrote {' and '.join(written)}.")
    if len(opened) > 1:
        note(
            "Every person takes part in one of the parts, drawn at random; each part needs "
            "its own minimum."
        )
    if opened[0]["question"] is None:
        note(
            "This collection does not say what people are asked; plan with --question to show "
            "it on the page to take part on and elsewhere."
        )
    if issuer := opened[0]["issuer"]:
        note(
            f"{issuer} learns who takes part, and when they ask for a token. Together with the "
            "first shuffler it may tell who sent what: by people's addresses, unless they send "
            "through a relay, and by time, if they send soon after they ask "
            + (
                f"(reports wait a random part of {opened[0]['delay']:,} seconds)."
                if opened[0]["delay"]
                else "(reports do not wait; see --delay)."
            )
        )
    elif opened[0]["tickets_file"] is None:
        note(
            "Anybody may send reports, even a program that fills the collection in minutes: "
            f"after {opened[0]['maximum']:,} reports all others are rejected. --admission "
            "tickets prevents that."
        )
    note("Publish the digest where the shuffler cannot change it.")


def status(
    collection_file: CollectionFile,
    server: OwnServers = None,
    keys: KeyFolders = None,
    token_file: TokenFiles = None,
    as_json: Json = False,
) -> None:
    """Operator: show the state of a collection and its number of reports."""
    loaded, operators = _load_with_operators(collection_file, server, keys, token_file)
    _show([operator.status(loaded.digest) for operator in operators], loaded, as_json)


def abort(
    collection_file: CollectionFile,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason for aborting, which is public.")
    ] = "no reason given",
    server: OwnServers = None,
    keys: KeyFolders = None,
    token_file: TokenFiles = None,
    as_json: Json = False,
) -> None:
    """Operator: abort a collection and destroy its reports and keys.

    The round counts as used, because people have reported.
    """
    loaded, operators = _load_with_operators(collection_file, server, keys, token_file)
    _show([operator.abort(loaded.digest, reason) for operator in operators], loaded, as_json)


def purge(
    collection_file: CollectionFile,
    server: OwnServers = None,
    keys: KeyFolders = None,
    token_file: TokenFiles = None,
    as_json: Json = False,
) -> None:
    """Operator: destroy the released messages once the analyst has them."""
    loaded, operators = _load_with_operators(collection_file, server, keys, token_file)
    _show([operator.purge(loaded.digest) for operator in operators], loaded, as_json)


def _load_with_operators(
    file: Path, server: OwnServers, keys: KeyFolders, token_file: TokenFiles
) -> tuple[AnyCollection, list[Operator]]:
    """Load the collection, and the operators of the shufflers for which there is a token.

    Tokens belong to the first shufflers of the chain, in order.
    """
    from metricshuffle.collection.adder.sum_terms import load_any
    from metricshuffle.collection.shuffler.server import validate_address

    loaded = load_any(file)
    token_count = len(keys or ()) or len(token_file or ()) or 1
    servers = [validate_address(url, "--server") for url in server or ()]
    hops = [hop.url for hop in loaded.terms.hops[:token_count]]
    return loaded, make_operators(servers or hops, keys, token_file)


def _show(statuses: Sequence[dict[str, Any]], loaded: AnyCollection, as_json: bool) -> None:
    """Print the state at each shuffler."""
    from metricshuffle.cli.console import say, screen
    from metricshuffle.tasks.wording import wording_lines

    first = statuses[0]
    task = loaded.task
    if as_json:
        first = first | {"title": task.title, "question": task.question}
        print(json.dumps(first | ({"hops": list(statuses)} if len(statuses) > 1 else {})))
        return
    say(screen(), *wording_lines(task.title, task.question))
    urls = [hop.url for hop in loaded.terms.hops]
    for status, url in zip(statuses, urls, strict=False):
        lines = [
            f"{loaded.digest[:16]} at {url}: "
            f"{status['state']}{': ' + status['reason'] if status['reason'] else ''}"
        ]
        if status["state"] == "open":
            lines.append(
                f"  {status['reports']:,} reports of at least {status['minimum']:,}; round "
                f"{status['round']}; until {status['until']}"
            )
        lines += [
            f"  {name} at {status[key]}"
            for name, key in (("sealed", "sealed_at"), ("released", "released_at"))
            if status.get(key)
        ]
        lines += [f"  {note}" for note in status.get("clock", ())]
        if status.get("leases"):
            lines.append(f"  {status['leases']}")
        if status["people"] is not None:
            line = f"  {status['people']:,} people"
            if "left_out" in status:  # adders leave nobody out
                line += f", and {status['left_out']:,} left out because they shared a box"
            lines.append(line)
        if status["trouble"]:
            lines.append(f"  does not go on: {status['trouble']}")
        say(screen(), *lines)


def clock(
    action: Action,
    server: Servers,
    keys: KeyFolders = None,
    token_file: TokenFiles = None,
    as_json: Json = False,
) -> None:
    """Operator: show, confirm or correct the clock of a shuffler.

    Correct the machine's clock first. After a jump ahead, nothing is sealed, released or destroyed
    by time until the clock is right again or is confirmed. A confirmation or correction is recorded
    publicly in every open collection. Neither seals a collection before its closing time by a
    correct clock, and a sealed collection is never opened again.
    """
    from metricshuffle.cli.console import say, screen
    from metricshuffle.collection.shuffler.server import validate_address

    choice("action", action, ("show", "confirm", "correct"))
    operators = make_operators(
        [validate_address(address, "--server") for address in server], keys, token_file
    )
    for operator in operators:
        act = {
            "show": operator.clock,
            "confirm": operator.confirm_clock,
            "correct": operator.correct_clock,
        }[action]
        answer = act()
        if as_json:
            print(json.dumps({"server": operator.url, **answer}))
            continue
        believed = "believed" if answer.get("believed") else "not believed"
        say(
            screen(),
            f"The clock at {operator.url} says {answer.get('clock')} and is {believed}.",
            *(str(answer[name]) for name in ("note", "trouble") if answer.get(name)),
        )


def database(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="show or accept.")],
    server: Servers,
    keys: KeyFolders = None,
    token_file: TokenFiles = None,
    as_json: Json = False,
) -> None:
    """Operator: show whether a hub accepts its database, or accept one older than the keys.

    A hub leases no keys, and closes, releases and destroys nothing, while its database is another
    one or lacks what the hub wrote. Bring the right database back if you can. Acceptance is
    recorded publicly in every collection that has not ended; what the database lost stays lost.
    """
    from metricshuffle.cli.console import say, screen
    from metricshuffle.collection.shuffler.server import validate_address

    choice("action", action, ("show", "accept"))
    addresses = [validate_address(address, "--server") for address in server]
    for operator in make_operators(addresses, keys, token_file):
        answer = operator.accept_database() if action == "accept" else operator.database()
        if as_json:
            print(json.dumps({"server": operator.url, **answer}))
            continue
        accepted = "accepted" if answer.get("accepted") else "not accepted"
        say(
            screen(),
            f"The database of {operator.url} is {accepted}.",
            *(str(answer[name]) for name in ("note", "trouble") if answer.get(name)),
        )


def lease(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="confirm.")],
    lease_id: Annotated[
        str, typer.Argument(metavar="ID", help="First digits of the lease's id, from the log.")
    ],
    server: Servers,
    keys: KeyFolders = None,
    token_file: TokenFiles = None,
    as_json: Json = False,
) -> None:
    """Operator: confirm to a hub that the machine of an edge is destroyed, which ends its lease.

    Keys are destroyed after all their leases have ended. A lease that was not returned ends by
    itself when its time has passed, and the public state says so.
    """
    from metricshuffle.cli.console import say, screen
    from metricshuffle.collection.shuffler.server import validate_address
    from metricshuffle.errors import InputError

    choice("action", action, ("confirm",))
    if not lease_id.isalnum():
        raise InputError("the id of a lease consists of hexadecimal digits.")
    addresses = [validate_address(address, "--server") for address in server]
    for operator in make_operators(addresses, keys, token_file):
        answer = operator.confirm_lease(lease_id)
        if as_json:
            print(json.dumps({"server": operator.url, **answer}))
        else:
            say(screen(), str(answer["note"]))


for name, command in (
    ("open", open_collection),
    ("status", status),
    ("abort", abort),
    ("purge", purge),
    ("clock", clock),
    ("database", database),
    ("lease", lease),
):
    collection.command(name)(command)

"""`metricshuffle budget --outbox`: the ledger of a person on their device, and their limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.collection.client.outbox import Outbox

OUTBOX = "submissions.outbox"

DeviceOutbox = Annotated[
    Path | None,
    typer.Option(
        "--outbox",
        metavar="FILE",
        help=(
            "Your outbox: show what your reports can reveal together, by unit of distance, "
            f"instead of an analyst's releases; {OUTBOX} in this folder if left out beside "
            "--user, --limit or --forget."
        ),
    ),
]
DeviceUser = Annotated[
    str | None,
    typer.Option(
        "--user", metavar="NAME", help="Your name in the outbox, as for `metricshuffle submit`."
    ),
]
DeviceLimits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="LIMIT",
        help=(
            'Set a limit of yours, like "3 at 100 kcal in 30d": `submit` asks before the sum '
            "of your local epsilons goes over it. With `if honest` behind it, it is about the sum "
            "that holds if the shufflers or adders are honest; with `none` instead of the epsilon, "
            "it is removed. May be repeated."
        ),
    ),
]
ForgetLedger = Annotated[
    bool,
    typer.Option("--forget", help="Delete your ledger, after showing what it forgets."),
]
AgreedBefore = Annotated[
    bool, typer.Option("--yes", help="Answer yes to the question that this command asks.")
]


def agrees(question: str, *, yes: bool) -> bool:
    """Whether a person says yes to a question, which is asked only at a terminal."""
    import sys

    from metricshuffle.cli.console import encodable_text

    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return yes
    print(encodable_text(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def show_device_budget(
    outbox: Path | None,
    user: str,
    limits: Sequence[str],
    *,
    forget: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Set limits, or delete the ledger, and show it."""
    from contextlib import closing

    from metricshuffle.collection.client.device_ledger import DeviceLimit
    from metricshuffle.collection.client.outbox import Outbox

    path = Path(OUTBOX) if outbox is None else outbox
    parsed = [DeviceLimit.parse(text) for text in limits]
    if not path.exists() and not limits:
        raise InputError(
            f"there is no outbox {path}, so nothing is known of your reports; name yours with "
            "--outbox."
        )
    with closing(Outbox(path)) as opened:
        who = opened.user(user)
        for limit, is_set in parsed:
            if is_set:
                opened.set_limit(who, limit)
            elif not opened.remove_limit(who, limit):
                raise InputError(f"there is no limit for {str(limit).split(' ', 1)[1]}.")
        if forget:
            _forget(opened, who, yes=yes)
        _show(opened, who, as_json=as_json)


def _forget(opened: Outbox, who: bytes, *, yes: bool) -> None:
    from metricshuffle.cli.console import note

    ledger = opened.ledger(who)
    count = len(ledger.entries)
    note(*ledger.lines())
    if not agrees(
        f"Forget these {count:,} entries? Limits then count from zero, although what was reported "
        "stays reported. Your limits, and that you have reported, are not forgotten.",
        yes=yes,
    ):
        raise InputError("nothing was forgotten; --yes forgets it without a question.")
    opened.forget_ledger(who)


def _show(opened: Outbox, who: bytes, *, as_json: bool) -> None:
    import json

    from metricshuffle.cli.console import say, screen

    ledger = opened.ledger(who)
    if as_json:
        print(json.dumps(ledger.document()))
    else:
        say(screen(), *ledger.lines())

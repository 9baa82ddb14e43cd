"""`metricshuffle plan`: from what is wanted to a plan file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricshuffle.cli.options import Honest, Json, Rounds, Users, choice, number, whole, writable
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.planning import Plan
    from metricshuffle.protocols import Query

ASKED, PROMISE, LIMITS, SHOWN = "What is asked", "What is promised", "What may be chosen", "What is shown"


def plan(
    query: Annotated[str, typer.Option("--query", metavar="sum|mean|centroid", help="The answer that is wanted.", rich_help_panel=ASKED)],
    distance: Annotated[
        float,
        typer.Option(
            "--distance", parser=number, metavar="D", rich_help_panel=PROMISE, help="How far values may move and stay hidden, in units."
        ),
    ],
    delta: Annotated[
        float,
        typer.Option(
            "--delta", parser=number, metavar="X", rich_help_panel=PROMISE, help="Failure probability, 0 <= X < 1; 0 keeps pure protocols."
        ),
    ],
    users: Users,
    honest: Honest = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon", parser=number, metavar="E", rich_help_panel=PROMISE, help="TOTAL epsilon at the distance; give this or --error."
        ),
    ] = None,
    error: Annotated[
        float | None,
        typer.Option(
            "--error",
            parser=number,
            metavar="E",
            rich_help_panel=PROMISE,
            help="Find the smallest epsilon whose expected absolute error is at most E units (of one round).",
        ),
    ] = None,
    flat: Annotated[
        bool,
        typer.Option(
            "--flat", rich_help_panel=PROMISE, help="The same epsilon for every move up to the distance, instead of in proportion to it."
        ),
    ] = False,
    rounds: Rounds = 1,
    low: Annotated[
        str | None,
        typer.Option(
            "--low", metavar="NUMBER", rich_help_panel=ASKED, help="Sum and mean: least value; 0 means whole numbers, 0.0 real ones."
        ),
    ] = None,
    high: Annotated[
        str | None, typer.Option("--high", metavar="NUMBER", rich_help_panel=ASKED, help="Sum and mean: largest value.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option("--unit", metavar="WORD", rich_help_panel=ASKED, help="What the numbers count, like kcal or m.")
    ] = None,
    width: Annotated[
        int | None, typer.Option("--width", parser=whole, metavar="CELLS", rich_help_panel=ASKED, help="Centroid: cells from west to east.")
    ] = None,
    height: Annotated[
        int | None,
        typer.Option("--height", parser=whole, metavar="CELLS", rich_help_panel=ASKED, help="Centroid: cells from south to north."),
    ] = None,
    cell: Annotated[
        float | None,
        typer.Option(
            "--cell", parser=number, metavar="C", rich_help_panel=ASKED, help="Centroid: side of a cell in units (metres with --box)."
        ),
    ] = None,
    box: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(
            "--box",
            metavar="SOUTH WEST NORTH EAST",
            rich_help_panel=ASKED,
            help="Centroid: a box in degrees instead of --width and --height.",
        ),
    ] = None,
    encoding: Annotated[
        str,
        typer.Option(
            "--encoding",
            metavar="unary|modular|auto",
            rich_help_panel=LIMITS,
            help="One-bit messages, shares modulo a number, or the better of both.",
        ),
    ] = "auto",
    padding: Annotated[
        str,
        typer.Option(
            "--padding",
            metavar="clamp|bounded",
            rich_help_panel=LIMITS,
            help="How unary reports are kept in range: clamp the sum or bound the noise.",
        ),
    ] = "clamp",
    granularity: Annotated[
        float | None,
        typer.Option(
            "--granularity",
            parser=number,
            metavar="Q",
            rich_help_panel=LIMITS,
            help="Round at random to multiples of Q first; real numbers need it.",
        ),
    ] = None,
    transport: Annotated[
        str,
        typer.Option(
            "--transport",
            metavar="shuffler|aggregator",
            rich_help_panel=LIMITS,
            help="Who gets modular shares: a shuffler, or somebody who only sums.",
        ),
    ] = "shuffler",
    trusted: Annotated[
        str,
        typer.Option(
            "--trusted",
            metavar="nobody|shuffler|curator",
            rich_help_panel=LIMITS,
            help="Whom a protocol may rely on; others are listed as baselines.",
        ),
    ] = "shuffler",
    max_local_epsilon: Annotated[
        float | None,
        typer.Option(
            "--max-local-epsilon", parser=number, metavar="E", rich_help_panel=LIMITS, help="Most that one report alone may reveal."
        ),
    ] = None,
    max_bits: Annotated[
        int | None, typer.Option("--max-bits", parser=whole, metavar="N", rich_help_panel=LIMITS, help="Most bits a person may send.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", rich_help_panel=SHOWN, help="Say in words what is and is not hidden.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", rich_help_panel=SHOWN, help="Write the plan as JSON; all three roles read it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Choose a protocol: calibrate all that apply, compare their errors, and keep the best as a plan."""
    if (epsilon is None) == (error is None):
        raise InputError("give either --epsilon (how much may be revealed) or --error (how exact the answer must be), and not both.")
    choice("encoding", encoding, ("unary", "modular", "auto"))
    choice("padding", padding, ("clamp", "bounded"))
    choice("transport", transport, ("shuffler", "aggregator"))
    choice("trusted", trusted, ("nobody", "shuffler", "curator"))
    writable(save, option="--save")
    asked = _query(query, low=low, high=high, unit=unit, width=width, height=height, cell=cell, box=box, granularity=granularity)

    from metricshuffle.cli.screen import working
    from metricshuffle.planning import Target, plan_for_error
    from metricshuffle.planning import plan as calibrated
    from metricshuffle.privacy.profile import Shape

    shape: Shape = "flat" if flat else "linear"
    choices: dict[str, Any] = {
        "rounds": rounds, "encoding": encoding, "padding": padding, "granularity": 1.0 if granularity is None else granularity,
        "transport": transport, "trusted": trusted, "max_local_epsilon": max_local_epsilon, "max_bits": max_bits,
    }  # fmt: skip
    with working("Planning") as tell:
        if error is not None:
            made = plan_for_error(asked, error, delta, distance, users, honest, shape=shape, progress=tell, **choices)
        else:
            assert epsilon is not None  # noqa: S101 - one of the two is given
            made = calibrated(asked, Target(epsilon, delta, distance, shape), users, honest, progress=tell, **choices)
    if save is not None:
        made.save(str(save))
    if as_json:
        print(made.to_json())
    else:
        _show(made, explain=explain, save=save)


def _query(kind: str, *, granularity: float | None, **given: Any) -> Query:
    """The query that the options describe; options of another kind of query are refused."""
    choice("query", kind, ("sum", "mean", "centroid"))
    numeric, planar = ("low", "high"), ("width", "height", "cell", "box")
    foreign = [name for name in (planar if kind != "centroid" else numeric) if given[name] is not None]
    if foreign:
        raise InputError(f"--{foreign[0]} does not belong to --query {kind}; leave it out or ask for another query.")
    from metricshuffle.protocols import Centroid, Mean, Sum
    from metricshuffle.spaces import Grid, Integers, Interval

    unit = given["unit"]
    if kind == "centroid":
        if given["cell"] is None:
            raise InputError("--query centroid needs --cell, the side of a grid cell.")
        if given["box"] is not None:
            if given["width"] is not None or given["height"] is not None:
                raise InputError("give either --box or --width and --height, and not both; the box decides how many cells there are.")
            south, west, north, east = given["box"]
            return Centroid(Grid.from_box(south, west, north, east, given["cell"], unit or "m"))
        if given["width"] is None or given["height"] is None:
            raise InputError("--query centroid needs --width and --height in cells, or --box with four numbers in degrees.")
        return Centroid(Grid(given["width"], given["height"], given["cell"], unit or ""))
    for name in numeric:
        if given[name] is None:
            raise InputError(f"--query {kind} needs --low and --high, the range that values lie in; --{name} is missing.")
    low, high = (_bound(name, given[name]) for name in numeric)
    if isinstance(low, int) and isinstance(high, int):
        whole_numbers = Integers(low, high, unit or "")
        return Sum(domain=whole_numbers) if kind == "sum" else Mean(domain=whole_numbers)
    numbers = Interval(low, high, unit or "")
    if granularity is None:
        raise InputError(
            f"--low {given['low']} and --high {given['high']} have decimals, so values are real numbers, and real numbers need "
            f"--granularity, the step they are rounded to; write bounds without decimals for whole numbers."
        )
    return Sum(domain=numbers) if kind == "sum" else Mean(domain=numbers)


def _bound(name: str, text: str) -> int | float:
    try:
        return whole(text) if "." not in text else number(text)
    except (ValueError, OverflowError):
        try:
            return number(text)
        except ValueError:
            raise InputError(f"--{name} must be a finite number, got {text!r}.") from None


def _show(made: Plan, *, explain: bool, save: Path | None) -> None:
    from metricshuffle.cli.screen import note, say, screen
    from metricshuffle.cli.table import candidates_table
    from metricshuffle.planning.explain import explanation, target_text, why_chosen

    console = screen()
    people = f"{made.users:,} users ({made.honest:,} honest)" + ("" if made.rounds == 1 else f", {made.rounds} rounds")
    say(console, f"{made.query.kind.capitalize()} over {made.query.domain}, {people}.", f"Target: {target_text(made)}.")
    console.print(candidates_table(made))
    if made.rounds > 1:
        say(console, f"Errors and bits are for one round, every epsilon for all {made.rounds} rounds together.")
    say(console, why_chosen(made), "")
    trusted = made.choice.trusted
    if trusted == "nobody":
        say(console, str(made.choice.guarantee))
    else:
        say(console, f"If the {trusted} is honest: {made.choice.guarantee}", f"If it is not: {made.choice.fallback}")
    if explain:
        say(console, "", *(f"- {line}" for line in explanation(made)))
        say(console, *(f"- Not offered: {one.protocol} ({one.encoding}): {one.reason}" for one in made.not_offered))
    elif made.not_offered:
        say(console, f"{len(made.not_offered)} more did not apply; --explain says why.")
    if save is not None:
        note(f"Wrote {save}.")

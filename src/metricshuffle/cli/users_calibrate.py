"""`metricshuffle users calibrate`: from what a user is promised to what each of her items may tell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from metricshuffle.cli.options import Honest, Json, Users, choice, number, whole
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.accounting.items.item_wise import ItemCalibration

RESPONSE = "Only for a clustered response"


def calibrate(
    rate: Annotated[
        float, typer.Option("--rate", "--alpha", parser=number, metavar="A", help="Epsilon per unit of earth mover's distance.")
    ],
    delta: Annotated[float, typer.Option("--delta", parser=number, metavar="X", help="Failure probability; 0: plain composition.")],
    users: Users,
    items: Annotated[int, typer.Option("--items", parser=whole, metavar="M", help="How many items each of them holds.")],
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="local|central", help="Whose reports are shuffled together: each user's own, or everybody's (a shuffler)."
        ),
    ],
    honest: Honest = None,
    diameter: Annotated[float, typer.Option("--diameter", parser=number, metavar="D", help="Largest distance of two items, in units.")] = 1,
    unit: Annotated[str, typer.Option("--unit", metavar="WORD", help="What distances are measured in, like km.")] = "",
    clusters: Annotated[
        int | None, typer.Option("--clusters", parser=whole, metavar="S", rich_help_panel=RESPONSE, help="How many clusters.")
    ] = None,
    places: Annotated[
        int | None, typer.Option("--places", parser=whole, metavar="T", rich_help_panel=RESPONSE, help="Points in each cluster.")
    ] = None,
    inner: Annotated[
        float | None,
        typer.Option(
            "--inner", parser=number, metavar="R", rich_help_panel=RESPONSE, help="Distance within a cluster; it is 1 between clusters."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """The largest epsilon per unit that each item may be reported at, certified at every distance a user's items can move.

    With --clusters, --places and --inner for a clustered response, otherwise for any item randomizer.
    """
    choice("model", model, ("local", "central"))
    if not rate > 0.0:
        raise InputError(f"--rate must be greater than 0, got {rate:g}.")
    if not 0.0 <= delta < 1.0:
        raise InputError(f"--delta must lie in [0, 1), got {delta:g}: a delta of 1 or more promises nothing.")
    if items < 1:
        raise InputError(f"--items must be a whole number >= 1, got {items}; a user without items has nothing to report.")
    if not diameter > 0.0:
        raise InputError(f"--diameter must be greater than 0, got {diameter:g}.")
    shape = (clusters, places, inner)
    if any(one is not None for one in shape):
        if any(one is None for one in shape):
            raise InputError("--clusters, --places and --inner describe one thing; give all three, or none for any item randomizer.")
        if diameter != 1.0:
            raise InputError("--diameter must be left out with --clusters: clusters are 1 apart.")

    from metricshuffle.accounting.clones.bound import MOST_USERS
    from metricshuffle.cli.screen import working
    from metricshuffle.privacy.target import checked_users, honest_count

    counted = honest_count(honest, checked_users(users))
    if model == "central" and counted * items > MOST_USERS:
        raise InputError(
            f"--users times --items must be at most 2^52 where everybody's reports are shuffled together, got {counted:,} x {items:,}."
        )
    with working("Calibrating"):
        found = _calibrated(model, counted, items, rate, delta, diameter, shape)
        published = _published(model, counted, items, rate, delta, diameter)
    if as_json:
        _print_json(found, published, diameter)
    else:
        _tell(found, published, model, users, counted, items, rate, delta, diameter, unit, shape)


def _calibrated(
    model: str, users: int, items: int, rate: float, delta: float, diameter: float, shape: tuple[Any, ...]
) -> ItemCalibration:  # fmt: skip
    from metricshuffle.accounting.items.item_wise import ItemShuffle, calibrated, calibrated_family
    from metricshuffle.spaces import Clustered

    shuffle = ItemShuffle.of("local" if model == "local" else "central", users, items, diameter)
    if shape[0] is None:
        return calibrated(shuffle, rate, delta)
    from metricshuffle.randomizers import ClusteredResponse

    clustered = Clustered(*shape)  # says what is wrong with the clusters before a response is made
    return calibrated_family(
        lambda item_rate: ClusteredResponse(clustered.clusters, clustered.places, clustered.inner, item_rate), shuffle, rate, delta
    )


def _published(model: str, users: int, items: int, rate: float, delta: float, diameter: float) -> float | None:
    """The published theorem is stated for diameter 1, and needs a delta."""
    from metricshuffle.accounting.items.published_rate import published_item_rate

    if delta == 0.0:
        return None
    kind: Literal["local", "central"] = "local" if model == "local" else "central"
    found = published_item_rate(rate * diameter, delta, users, items, kind)
    return None if found is None else found / diameter


def _print_json(found: ItemCalibration, published: float | None, diameter: float) -> None:
    import json

    proof = found.certified
    worst, at = proof.worst
    print(
        json.dumps(
            {
                "item_rate": found.item_rate, "certified": proof.kept, "composition_rate": found.composition_rate,
                "published_rate": published,
                "certificate": {
                    "bound": found.bound, "intervals": len(proof.intervals), "up_to_distance": proof.distance * diameter,
                    "worst_delta": worst, "worst_at_distance": at * diameter,
                },
            }
        )
    )  # fmt: skip


def _tell(
    found: ItemCalibration, published: float | None, model: str, users: int, honest: int, items: int, rate: float, delta: float,
    diameter: float, unit: str, shape: tuple[Any, ...],
) -> None:  # fmt: skip
    from metricshuffle.accounting.items.user_level import full_replacement_sentence
    from metricshuffle.cli.screen import say, screen
    from metricshuffle.numerics.rounding import plain
    from metricshuffle.privacy.guarantee import Guarantee, Trust

    per = f" per {unit}" if unit else ""
    # Composition counts every report of a user as seen, so that it needs no shuffler; with a delta it may beat rate/items by a hair.
    alone, certainly = found.bound == "composition", found.item_rate <= found.composition_rate
    trust = Trust(trusted="nobody") if model == "local" or alone else Trust(trusted="shuffler", honest_reports=honest)
    guarantee = Guarantee(
        epsilon=rate * diameter, delta=0.0 if certainly else delta, distance=diameter, unit=unit, shape="linear",
        protects="one user's items", trust=trust, bound=found.bound, items=items,
    )  # fmt: skip
    whose = "each user's own reports" if model == "local" else f"the reports of all {users:,} users" if users > 1 else "her reports"
    together = "" if alone else f", and {whose} are shuffled"
    through = "any item randomizer" if shape[0] is None else f"a clustered response ({shape[0]} x {shape[1]}, inner {plain(shape[2])})"
    lines = [
        f"Item rate {_down(found.item_rate)}{per}: every item goes through {through} of that rate{together}.",
        str(guarantee),
        full_replacement_sentence(guarantee, diameter),
    ]
    if alone:
        lines.append("Shuffling buys nothing here: this is the item rate that plain composition allows, and it needs no shuffler.")
    else:
        times = found.item_rate / found.composition_rate
        lines.append(
            f"Plain composition, without shuffling, allows item rate {_down(found.composition_rate)} ({plain(round(times, 2))} times less)."
        )
    lines.append(
        "The published theorem does not apply here."
        if published is None
        else f"The published theorem, solved correctly, allows {_down(published)}."
    )
    proof = found.certified
    if proof.ends and not alone:
        (worst, at), pieces = proof.worst, len(proof.intervals)
        far = f"{plain(diameter)}{f' {unit}' if unit else ''}"
        covered = f"{pieces} intervals that cover" if pieces > 1 else "one interval that covers"
        lines.append(
            f"Certified on {covered} every distance up to {far}; the largest delta found is {worst:.4g}, at {plain(at * diameter)}."
        )
    say(screen(), *lines)


def _down(rate: float) -> str:
    """Four digits, never more than was certified."""
    if rate == 0.0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(rate)) - 3)
    shown = float(f"{math.floor(rate / step * (1.0 + 1e-12)) * step:.4g}")
    return f"{shown:.4g}"

"""`metricshuffle users`: calibration for people who hold many items each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from metricshuffle.cli.shared_options import (
    Honest,
    Json,
    Users,
    choice,
    command_group,
    number,
    number_option,
    whole_option,
)
from metricshuffle.errors import InputError

if TYPE_CHECKING:
    from metricshuffle.accounting.user_items.item_reports import ItemCalibration
    from metricshuffle.spaces import Clustered

ABOUT = """Privacy of people who hold many items each, under the earth mover's distance.

Moving a fraction of a person's items by an average distance is a move of fraction times distance. \
The rate is epsilon per unit of this distance: small changes are hidden well, the replacement of all items less."""  # noqa: E501
RESPONSE = "Only for a clustered response"

users = command_group(ABOUT)


@users.command("calibrate")
def calibrate(
    rate: Annotated[
        float,
        typer.Option(
            "--rate",
            "--alpha",
            parser=number,
            metavar="A",
            help="Epsilon per unit of earth mover's distance.",
        ),
    ],
    delta: Annotated[
        float,
        number_option(
            "--delta",
            "X",
            "Delta of the guarantee; 0 uses basic composition.",
        ),
    ],
    users: Users,
    items: Annotated[int, whole_option("--items", "M", "Number of items that each person holds.")],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="local|central",
            help=(
                "Reports that are shuffled together: those of each user (local), or those of "
                "all users by a shuffler (central)."
            ),
        ),
    ],
    honest: Honest = None,
    diameter: Annotated[
        float, number_option("--diameter", "D", "Largest distance between two items, in units.")
    ] = 1,
    unit: Annotated[
        str, typer.Option("--unit", metavar="WORD", help="Unit of distances, such as km.")
    ] = "",
    clusters: Annotated[
        int | None, whole_option("--clusters", "S", "Number of clusters.", RESPONSE)
    ] = None,
    places: Annotated[
        int | None, whole_option("--places", "T", "Number of points in each cluster.", RESPONSE)
    ] = None,
    inner: Annotated[
        float | None,
        number_option(
            "--inner",
            "R",
            ("Distance between points of one cluster; points of different clusters are 1 apart."),
            RESPONSE,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the largest epsilon per unit of distance at which each item may be reported.

    The result is certified for every distance that a user's items can move. It holds for any item
    randomizer; with --clusters, --places and --inner, for clustered response.
    """
    choice("model", model, ("local", "central"))
    if not rate > 0.0:
        raise InputError(f"--rate must be greater than 0, got {rate:g}.")
    if not 0.0 <= delta < 1.0:
        raise InputError(
            f"--delta must lie in [0, 1), got {delta:g}: a delta of 1 or more guarantees nothing."
        )
    if items < 1:
        raise InputError(
            f"--items must be a whole number >= 1, got {items}; a user without items has "
            "nothing to report."
        )
    if not diameter > 0.0:
        raise InputError(f"--diameter must be greater than 0, got {diameter:g}.")
    shape = (clusters, places, inner)
    if any(parameter is not None for parameter in shape):
        if any(parameter is None for parameter in shape):
            raise InputError(
                "--clusters, --places and --inner describe one thing; give all three, or "
                "none for any item randomizer."
            )
        if diameter != 1.0:
            raise InputError("--diameter must be left out with --clusters: clusters are 1 apart.")

    from metricshuffle.accounting.shuffling.clone_bound import MAX_USERS
    from metricshuffle.cli.console import show_progress
    from metricshuffle.privacy.target import checked_users, honest_count

    counted = honest_count(honest, checked_users(users))
    if model == "central" and counted * items > MAX_USERS:
        raise InputError(
            "--users times --items must be at most 2^52 where everybody's reports are "
            f"shuffled together, got {counted:,} x {items:,}."
        )
    clustered = None
    if clusters is not None and places is not None and inner is not None:
        from metricshuffle.spaces import Clustered

        clustered = Clustered(clusters, places, inner)
    with show_progress("Calibrating"):
        calibration = _calibrate(model, counted, items, rate, delta, diameter, clustered)
        published = _published_rate(model, counted, items, rate, delta, diameter)
    if as_json:
        _print_json(calibration, published, diameter)
    else:
        _print_calibration(
            calibration,
            published,
            model,
            users,
            counted,
            items,
            rate,
            delta,
            diameter,
            unit,
            clustered,
        )


def _calibrate(
    model: str,
    users: int,
    items: int,
    rate: float,
    delta: float,
    diameter: float,
    clustered: Clustered | None,
) -> ItemCalibration:
    from metricshuffle.accounting.user_items.item_reports import (
        ItemShuffle,
        calibrate_family,
        calibrate_item_rate,
    )

    shuffle = ItemShuffle.of("local" if model == "local" else "central", users, items, diameter)
    if clustered is None:
        return calibrate_item_rate(shuffle, rate, delta)
    from metricshuffle.randomizers import ClusteredResponse

    return calibrate_family(
        lambda item_rate: ClusteredResponse(
            clustered.clusters, clustered.places, clustered.inner, item_rate
        ),
        shuffle,
        rate,
        delta,
    )


def _published_rate(
    model: str, users: int, items: int, rate: float, delta: float, diameter: float
) -> float | None:
    """Item rate of the published theorem, which is stated for diameter 1 and needs a delta."""
    from metricshuffle.accounting.user_items.published_rate import published_item_rate

    if delta == 0.0:
        return None
    kind: Literal["local", "central"] = "local" if model == "local" else "central"
    item_rate = published_item_rate(rate * diameter, delta, users, items, kind)
    return None if item_rate is None else item_rate / diameter


def _print_json(calibration: ItemCalibration, published: float | None, diameter: float) -> None:
    import json

    proof = calibration.certified
    worst, at = proof.worst
    print(
        json.dumps(
            {
                "item_rate": calibration.item_rate,
                "certified": proof.kept,
                "composition_rate": calibration.composition_rate,
                "published_rate": published,
                "certificate": {
                    "bound": calibration.bound,
                    "intervals": len(proof.intervals),
                    "up_to_distance": proof.distance * diameter,
                    "worst_delta": worst,
                    "worst_at_distance": at * diameter,
                },
            }
        )
    )


def _print_calibration(
    calibration: ItemCalibration,
    published: float | None,
    model: str,
    users: int,
    honest: int,
    items: int,
    rate: float,
    delta: float,
    diameter: float,
    unit: str,
    clustered: Clustered | None,
) -> None:
    from metricshuffle.accounting.user_items.user_privacy import full_replacement_sentence
    from metricshuffle.cli.console import say, screen
    from metricshuffle.numerics.rounding import format_number
    from metricshuffle.privacy.guarantee import Guarantee, Trust

    per = f" per {unit}" if unit else ""
    # Composition assumes that every report of a user is seen, so it needs no shuffler; with a
    # delta, its item rate may slightly exceed rate/items.
    alone = calibration.bound == "composition"
    certainly = calibration.item_rate <= calibration.composition_rate
    trust = (
        Trust(trusted="nobody")
        if model == "local" or alone
        else Trust(trusted="shuffler", honest_reports=honest)
    )
    guarantee = Guarantee(
        epsilon=rate * diameter,
        delta=0.0 if certainly else delta,
        distance=diameter,
        unit=unit,
        shape="linear",
        protects="one user's items",
        trust=trust,
        bound=calibration.bound,
        items=items,
    )
    whose = (
        "each user's own reports"
        if model == "local"
        else f"the reports of all {users:,} users"
        if users > 1
        else "the user's reports"
    )
    together = "" if alone else f", and {whose} are shuffled"
    through = "any item randomizer"
    if clustered is not None:
        through = (
            f"a clustered response ({clustered.clusters} x {clustered.places}, inner "
            f"{format_number(clustered.inner)})"
        )
    lines = [
        f"Item rate {_round_down_text(calibration.item_rate)}{per}: every item goes "
        f"through {through} of that rate{together}.",
        str(guarantee),
        full_replacement_sentence(guarantee, diameter),
    ]
    if alone:
        lines.append(
            "Shuffling buys nothing here: this is the item rate that plain composition "
            "allows, and it needs no shuffler."
        )
    else:
        times = calibration.item_rate / calibration.composition_rate
        lines.append(
            "Plain composition, without shuffling, allows item rate "
            f"{_round_down_text(calibration.composition_rate)} "
            f"({format_number(round(times, 2))} times less)."
        )
    lines.append(
        "The published theorem does not apply here."
        if published is None
        else f"The published theorem, solved correctly, allows {_round_down_text(published)}."
    )
    proof = calibration.certified
    if proof.ends and not alone:
        (worst, at), pieces = proof.worst, len(proof.intervals)
        diameter_text = f"{format_number(diameter)}{f' {unit}' if unit else ''}"
        covered = f"{pieces} intervals that cover" if pieces > 1 else "one interval that covers"
        lines.append(
            f"Certified on {covered} every distance up to {diameter_text}; the largest "
            f"delta found is {worst:.4g}, at "
            f"{format_number(at * diameter)}."
        )
    say(screen(), *lines)


def _round_down_text(rate: float) -> str:
    """Format with four digits, never above the certified rate."""
    if rate == 0.0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(rate)) - 3)
    rounded = float(f"{math.floor(rate / step * (1.0 + 1e-12)) * step:.4g}")
    return f"{rounded:.4g}"

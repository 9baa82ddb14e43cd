"""Worked example of Imola24, a month of positions: its rate, its error and its item rate."""

from __future__ import annotations

import math

from metricshuffle_papers.reproduction import (
    Item,
    Reproduction,
    Row,
    Settings,
    judged,
    printed_rounding,
    published_value,
)

PLACES = "Section 3, concrete example"
ERROR = "Section 4.1, concrete example"
RATE = "Section 4.2, concrete example"


def _printed(table: str, row: str) -> float:
    return published_value("earth_mover", table, row)


def _told(table: str, row: str, method: float, ours: float, note: str) -> Row:
    """Row judged by the value of the paper's own method."""
    verdict = judged(
        _printed(table, row), method, rounding=printed_rounding("earth_mover", table, row)
    )
    return Row(f"{table}: {row}", _printed(table, row), method, ours, verdict, note=note)


def run(settings: Settings) -> Reproduction:
    from metricshuffle.accounting.user_items.item_reports import (
        ItemShuffle,
        ItemWiseProfile,
        calibrate_item_rate,
    )
    from metricshuffle.accounting.user_items.user_privacy import rate_for_changes
    from metricshuffle_papers.earth_mover.error_bounds import example_error, example_rate
    from metricshuffle_papers.earth_mover.privacy_bounds import theorem_4_4, theorem_4_4_item_rate

    users, items = (int(_printed(PLACES, name)) for name in ("users", "items"))
    rate, delta, epsilon, diameter = (
        _printed(PLACES, name) for name in ("alpha", "delta", "epsilon", "diameter, miles")
    )
    day, month = (_printed(PLACES, f"q of a {span}") for span in ("day", "month"))
    changes = [
        (1.0 / _printed(PLACES, "days in a month"), day, epsilon),
        (_printed(PLACES, "tau of a month"), month, epsilon),
    ]
    formula = example_error(rate, users).claim
    exact = 2.0 / (math.sqrt(math.pi * users) * rate)
    solved = theorem_4_4_item_rate(rate, delta, users, items, "central").claim
    whole = theorem_4_4_item_rate(rate, delta, users, items, "central", "whole distance only").claim
    certified = calibrate_item_rate(
        ItemShuffle.of("central", users, items), rate, delta, 1e-3
    ).item_rate
    three = _printed(RATE, "alpha_0 by Theorem 4.4")
    own = theorem_4_4(three, users, items, delta * math.exp(-rate), "central").claim
    safe = (
        ItemWiseProfile(three, ItemShuffle.of("central", users, items))
        .certificate(rate, delta)
        .kept
    )
    rows = (
        *(
            _told(
                PLACES,
                f"q of a {span}",
                miles / diameter,
                miles / diameter,
                "miles over the largest distance on earth",
            )
            for span in ("day", "month")
            for miles in [_printed(PLACES, f"distance of a {span}, miles")]
        ),
        _told(
            PLACES,
            "alpha",
            example_rate(changes).claim,
            rate_for_changes(changes),
            "a month by 100 miles is the stricter change",
        ),
        _told(ERROR, "noise of a user", 1.0 / rate, 1.0 / rate, "mean of |Laplace(1/alpha)|"),
        _told(
            ERROR,
            "total noise",
            formula,
            exact,
            "the mean absolute error of the average is 2/sqrt(pi) = 1.128 times the formula",
        ),
        _told(ERROR, "error, miles", formula * diameter, exact * diameter, "the same in miles"),
        _told(RATE, "alpha_0 by composition", rate / items, rate / items, "delta is 0"),
        _told(
            RATE,
            "alpha_0 by Theorem 4.4",
            solved,
            certified,
            f"{whole:.4f} solves h(1) = {rate:g}, at w = 1 alone; the theorem's own rate "
            f"at {three:g} is {own:.4g}, not {rate:g}",
        ),
    )
    held = "is nevertheless safe" if safe else "is not certified"
    return Reproduction(
        words=(
            f"The item rate of the example, {three:g}, does not follow from Theorem 4.4, "
            f"which allows {solved:.4g}; it {held}: "
            f"{certified:.4g} is certified.",
            "h(w)/w is largest at w -> 0 and not at w = 1, where the example looks; at "
            f"{three:g} it is {own:.4g} and not {rate:g}.",
            f"The error of the average distance to a city is {exact:.3g} "
            f"({exact * diameter:.2f} miles), an eighth above the printed one.",
            f"A rate of {rate:g} hides the two changes at epsilon {epsilon:g}; a full "
            f"replacement of the positions costs epsilon {rate:g}.",
        ),
        rows=rows,
    )


ITEMS = (
    Item(
        "earth-mover-example",
        "Imola24",
        "Concrete examples",
        "The worked example: a month of positions",
        run,
    ),
)

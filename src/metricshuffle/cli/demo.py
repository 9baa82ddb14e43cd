"""`metricshuffle demo`: plan, run and explain a collection of built-in data."""

from __future__ import annotations

from metricshuffle.cli.shared_options import Json

PEOPLE = 500
HONEST = 0.9
EPSILON = 1.0
DELTA = 1e-6
DISTANCE = 20
LARGER = (
    "In the repository, `make demo` runs four collections and a live round through a "
    "shuffler, and writes a report."
)


def demo(as_json: Json = False) -> None:
    """Plan a mean of built-in numbers, run all roles with real noise, and print the answer."""
    import numpy as np

    from metricshuffle.cli.console import note, say, screen, show_progress
    from metricshuffle.numerics.rounding import format_number
    from metricshuffle.planning import plan
    from metricshuffle.privacy.target import Target
    from metricshuffle.queries import Mean
    from metricshuffle.spaces import Integers

    snacks = (np.arange(PEOPLE) ** 2 * 37) % 401  # kilocalories of invented people
    domain = Integers(0, 1000, "kcal")
    target = Target(epsilon=EPSILON, delta=DELTA, distance=DISTANCE)
    with show_progress("Planning"):
        made = plan(Mean(domain=domain), target, PEOPLE, HONEST)
    release = made.estimate(made.shuffle(made.randomize(snacks)), raw_values_seen=True)
    if as_json:
        print(release.to_json())
        return
    say(
        screen(),
        f"{PEOPLE:,} invented people are asked for the energy of their snacks, in {domain}.",
        f"Target: {target}, by {made.choice.protocol}; its expected error is "
        f"{format_number(made.choice.expected_error)} kcal.",
        "",
        f"The true mean is {format_number(float(snacks.mean()))} kcal. Released:",
        str(release),
    )
    note(LARGER)

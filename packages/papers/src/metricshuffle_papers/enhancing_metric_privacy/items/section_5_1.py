"""Section 5.1 of Athanasiou25: the correlated noise that SGDL-Shuffle replaces."""

from __future__ import annotations

import math

from metricshuffle_papers.enhancing_metric_privacy.correlated_noise import CorrelatedNoise
from metricshuffle_papers.reproduction import Item, Reproduction, Row, Settings

DELTA = 1e-4
EPSILONS = (0.1, 0.5, 0.9)
USERS = (100, 10_000)


def run(settings: Settings) -> Reproduction:
    rows: list[Row] = []
    for epsilon in EPSILONS:
        settings.progress(f"epsilon {epsilon:g}")
        noise = CorrelatedNoise.published(epsilon, DELTA)
        promise = noise.delta(epsilon, 1)
        central = math.sqrt(2.0 * math.exp(-epsilon)) / -math.expm1(-epsilon)
        rows += [
            Row(
                f"epsilon {epsilon:g}: delta of all messages",
                as_published=DELTA,
                ours=promise,
                verdict="loose" if promise <= DELTA else "false",
                note="at most, for a move by 1, from the joint law of both kinds of messages",
            ),
            Row(
                f"epsilon {epsilon:g}: standard deviation of the sum",
                as_published=math.sqrt(noise.variance),
                ours=central,
                note="ours: discrete Laplace noise of a curator, which has the whole epsilon",
            ),
            *(
                Row(
                    f"epsilon {epsilon:g}, n = {users:,}: messages of a person",
                    as_published=noise.messages(users, 0.5),
                    note="expected, with a mean value of 1/2",
                )
                for users in USERS
            ),
        ]
    return Reproduction(
        (
            "Correlated noise keeps its promise, nearly reaches a curator's error, and needs many "
            "messages where people are few.",
            "Values are 0 or 1, delta "
            f"{DELTA:g}; a hundredth of epsilon is spent on the number that both kinds of "
            "messages have in common. The constants are those that readers quote of Ghazi20, "
            "whose text we did not have.",
        ),
        tuple(rows),
    )


ITEMS = (
    Item(
        "shuffler-section-5-1",
        "Athanasiou25",
        "Section 5.1",
        "Correlated noise: its delta, error and number of messages",
        run,
    ),
)

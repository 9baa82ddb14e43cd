"""Benchmark of noise by the shuffler: `python -m benchmarks liars`.

Errors next to those of a curator with the same partitions, messages of a person, and what one
percent of liars add to the error of every candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import metricshuffle as ms
from benchmarks.measuring import measurement
from metricshuffle.planning.candidate_attacks import attack_candidates, task_of

# Errors may exceed those of a curator this many times.
CURATOR_RATIO = 1.1
RUNS = 400


def measurements() -> Iterator[dict[str, Any]]:
    for people in (50, 500, 5_000, 100_000):
        ratio = mean_error(people, "shuffler") / mean_error(people, "curator")
        name = f"error of 10 shares by a curator's, {people:,} people"
        yield measurement(name, ratio, "times", CURATOR_RATIO, at_most=True)
    grid = ms.Histogram(ms.Grid(32, 32, 100.0, "m"))
    plan = ms.plan(
        grid, ms.Target(1, 1e-6, 200), 100_000, protocols=["shuffler-noise"], floor="never"
    )
    messages = float(plan.choice.messages_per_user)
    yield measurement("messages of a person on a map of 1,024 cells", messages, "", 1, at_most=True)
    yield from attacked_errors()


def mean_error(people: int, trusted: str) -> float:
    """Mean error of shares of 10 labels, Zipf, with noise by the shuffler or by a curator."""
    query = ms.Histogram(ms.Categories([str(label) for label in range(10)]))
    plan = ms.plan(
        query,
        ms.Target(1, 1e-6, 1),
        people,
        trusted="curator",
        protocols=["shuffler-noise", "noisy-vectors"],
        floor="never",
    )
    protocols = {"shuffler": "shuffler-noise", "curator": "noisy-vectors"}
    [offer] = [
        offer
        for offer in plan.candidates
        if (offer.trusted, offer.protocol) == (trusted, protocols[trusted])
    ]
    task = task_of(plan, offer)
    chances = 1.0 / np.arange(1, 11)
    codes = np.random.default_rng(1).choice(10, people, p=chances / chances.sum())
    truth = np.bincount(codes, minlength=10) / people
    inputs = query.inputs([str(code) for code in codes], task.protocol.step)
    tally = task.tally().add(task.protocol.messages(inputs, ms.Randomness.system()))
    errors = []
    for seed in range(RUNS):
        shuffled = task.publish(tally, ms.Randomness.seeded(seed))
        shares = np.asarray(task.protocol.estimate(query, shuffled).possible)
        errors.append(np.abs(shares - truth).mean())
    return float(np.mean(errors))


def attacked_errors() -> Iterator[dict[str, Any]]:
    """Error with 1 % of liars among 100,000 people, by the error without them plus the damage."""
    query = ms.Histogram(ms.Categories(["a", "b", "c"]))
    plan = ms.plan(query, ms.Target(1, 1e-6, 1), 100_000, floor="never")
    for row in attack_candidates(plan, "1%", 1, ms.Randomness.seeded(1)):
        if row.attack is None:
            raise RuntimeError(row.reason)
        limit = row.attack.damage.of(row.attack.liars)
        name = f"{row.offer.protocol}, trusts {row.offer.trusted}: 1 % lie"
        if limit is None:
            moved = 100.0 * row.attack.moved
            yield measurement(f"{name}, a share moved", moved, "%", None)
        else:
            ratio = row.attack.error_with / (row.attack.error_without + limit)
            yield measurement(f"{name}, by the limit", ratio, "times", 1.0, at_most=True)

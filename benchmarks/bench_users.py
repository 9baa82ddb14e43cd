"""Benchmark of certified item rates, releases and plans: `python -m benchmarks users`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measuring import measurement, processor_seconds, seconds
from metricshuffle.accounting.user_items.item_reports import (
    ItemShuffle,
    ItemWiseProfile,
    calibrate_family,
    calibrate_item_rate,
)
from metricshuffle.planning import Plan, plan
from metricshuffle.privacy.target import Target
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.randomizers import ClusteredResponse
from metricshuffle.spaces import Clustered, nested_squares, users_of

# About a thousand points each, on a line and on a map of 31 x 31 cells.
WHERE = {
    "1,000 numbers": ("--low", "0", "--high", "999", "--distance", "100"),
    "31 x 31 cells": (
        "--box",
        "52.35",
        "13.15",
        "52.625",
        "13.60",
        "--cell",
        "1000",
        "--distance",
        "5000",
    ),
}
TARGET = ("--epsilon", "4", "--delta", "1e-6", "--users", "2000", "--honest", "90%")


def _certificate(shuffle: ItemShuffle, item_rate: float, rate: float, delta: float) -> object:
    return ItemWiseProfile(item_rate, shuffle).certificate(rate, delta)


def _any_randomizer() -> list[dict[str, Any]]:
    rows = []
    cases = (
        ("local", 1, 1000, 25.0, 1e-12),
        ("central", 10**5, 1000, 25.0, 1e-12),
        ("central", 10**4, 100, 5.0, 1e-6),
    )
    for model, users, items, rate, delta in cases:
        shuffle = ItemShuffle.of("local" if model == "local" else "central", users, items)
        time = seconds(partial(calibrate_item_rate, shuffle, rate, delta), 3)
        name = f"item rate, {model}, {users:.0e} users of {items:,} items, delta {delta:g}"
        rows.append(measurement(name, time, "s", 5.0, at_most=True))
        item_rate = calibrate_item_rate(shuffle, rate, delta).item_rate
        rows.append(
            measurement(
                "  its item rate over that of composition", item_rate * items / rate, "", 1.0
            )
        )
        time = seconds(partial(_certificate, shuffle, item_rate, rate, delta))
        rows.append(measurement("  one certificate", time, "s", None))
    return rows


def _one_randomizer() -> list[dict[str, Any]]:
    rows = []
    for model, users, shape, rate in (
        ("local", 1, (8, 8, 0.05), 20.0),
        ("central", 10**4, (4, 4, 0.02), 10.0),
    ):
        shuffle = ItemShuffle.of("local" if model == "local" else "central", users, 100)
        job = partial(calibrate_family, partial(ClusteredResponse, *shape), shuffle, rate, 1e-9)
        rows.append(
            measurement(
                f"item rate of a clustered response, {model}, {users:.0e} users",
                seconds(job, 1),
                "s",
                None,
            )
        )
        gain = job().item_rate / calibrate_item_rate(shuffle, rate, 1e-9).item_rate
        rows.append(measurement("  its item rate over that of any randomizer", gain, "", 1.0))
    return rows


def _releases() -> list[dict[str, Any]]:
    """Rows for every role on 10,000 users with 100 items each, in clusters and nested squares."""
    rows = []
    held = np.random.default_rng(0).integers(0, 64, (10_000, 100))
    spaces = (("clusters", Clustered(8, 8, 0.05)), ("nested squares", nested_squares(3, 1.0)))
    for where, space in spaces:
        query = UserHistogram(users_of(space, 100))
        target = Target(epsilon=20.0 * query.diameter, delta=1e-9, distance=query.diameter)
        for protocol in ("item-wise", "tree-laplace"):
            planned = plan(query, target, 10_000, protocols=[protocol])
            time = seconds(partial(_roles, planned, held), 3)
            name = f"1e4 users x 100 items in {where}, {protocol}, all roles"
            rows.append(measurement(name, time, "s", 2.0, at_most=True))
    return rows


def _roles(planned: Plan, held: Any) -> object:
    return planned.estimate(planned.shuffle(planned.randomize(held)))


def _plans() -> list[dict[str, Any]]:
    """Rows for the whole process of the command, on one processor."""
    rows = []
    for where, place in WHERE.items():
        for held in (("--items", "20"), ()):
            words = (
                sys.executable,
                "-m",
                "metricshuffle",
                "plan",
                "--query",
                "user-histogram",
                *place,
                *held,
                *TARGET,
            )
            rows.append(
                measurement(
                    f"plan over {where}, {' '.join(held) or 'any number of items'}, processor",
                    processor_seconds(words),
                    "s",
                    5.0,
                    at_most=True,
                )
            )
    return rows


def measurements() -> list[dict[str, Any]]:
    return _any_randomizer() + _one_randomizer() + _releases() + _plans()

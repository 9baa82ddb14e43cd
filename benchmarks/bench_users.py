"""How long a certified item rate takes, and how it compares: `python -m benchmarks users`."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.measuring import measurement, seconds
from metricshuffle.accounting.item_wise import ItemShuffle, ItemWiseProfile, calibrated, calibrated_family
from metricshuffle.randomizers import ClusteredResponse


def _certificate(shuffle: ItemShuffle, item_rate: float, rate: float, delta: float) -> object:
    return ItemWiseProfile(item_rate, shuffle).certificate(rate, delta)


def _any_randomizer() -> list[dict[str, Any]]:
    rows = []
    cases = (("local", 1, 1000, 25.0, 1e-12), ("central", 10**5, 1000, 25.0, 1e-12), ("central", 10**4, 100, 5.0, 1e-6))
    for model, users, items, rate, delta in cases:
        shuffle = ItemShuffle.of("local" if model == "local" else "central", users, items)
        time = seconds(partial(calibrated, shuffle, rate, delta), 3)
        name = f"item rate, {model}, {users:.0e} users of {items:,} items, delta {delta:g}"
        rows.append(measurement(name, time, "s", 5.0, at_most=True))
        found = calibrated(shuffle, rate, delta).item_rate
        rows.append(measurement("  its item rate over that of composition", found * items / rate, "", 1.0))
        time = seconds(partial(_certificate, shuffle, found, rate, delta))
        rows.append(measurement("  one certificate", time, "s", None))
    return rows


def _one_randomizer() -> list[dict[str, Any]]:
    rows = []
    for model, users, shape, rate in (("local", 1, (8, 8, 0.05), 20.0), ("central", 10**4, (4, 4, 0.02), 10.0)):
        shuffle = ItemShuffle.of("local" if model == "local" else "central", users, 100)
        job = partial(calibrated_family, partial(ClusteredResponse, *shape), shuffle, rate, 1e-9)
        rows.append(measurement(f"item rate of a clustered response, {model}, {users:.0e} users", seconds(job, 1), "s", None))
        gain = job().item_rate / calibrated(shuffle, rate, 1e-9).item_rate
        rows.append(measurement("  its item rate over that of any randomizer", gain, "", 1.0))
    return rows


def measurements() -> list[dict[str, Any]]:
    return _any_randomizer() + _one_randomizer()

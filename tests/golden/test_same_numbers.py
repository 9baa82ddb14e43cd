"""Numbers do not change: every candidate of sixty settings against what the planner found before there was one kind of plan."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.settings import SETTINGS, Described, query_of

import metricshuffle as ms
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.protocols.frequencies import Frequencies

pytestmark = pytest.mark.thorough

# One word in the file was changed by hand: centroids beyond fifty cells were accounted one axis at a time and called "exact, joint".
BEFORE: dict[str, Described] = {one["name"]: one for one in json.loads(Path(__file__).with_name("candidates.json").read_text("utf-8"))}
# Centroids whose noise became less since: randomized response, bounded noise, and distances beyond fifty cells used to be accounted one
# axis at a time (and the largest flat move beyond fifty cells as if it could end between two of them); they are accounted jointly now.
JOINT: dict[str, Described] = {one["name"]: one for one in json.loads(Path(__file__).with_name("joint.json").read_text("utf-8"))}
CLOSE = 1e-9
# Expected errors of shares are simulated, and lengths of a tree are no longer off by their rounding to 32 bits.
SIMULATED = 1e-8
# Rates of single items are searched by bounds that are looked at roughly first, and their simulated errors follow other draws.
SEARCHED, DRAWN = 1e-5, 0.05
# Histograms on lines and grids whose reports may be stronger since shuffled reports are certified by the best of all bounds, and not by
# one blanket law for each displacement: the same promise with a smaller error. What one report gives away alone grows with its strength.
# The settings by name, each with the largest error there may be, as a part of what it was.
BETTER = {
    ("integers, flat", "bounded-geometric"): 0.93,
    ("integers, capped", "bounded-geometric"): 0.999,
    ("cells", "planar-geometric"): 0.93,
    ("cells, flat", "planar-geometric"): 0.72,
    ("cells, capped", "planar-geometric"): 0.82,
}
# Those whose reports are as they were, but where another bound than the blanket is the smallest, as a cap leaves room for all of them.
RENAMED = {("labels, capped", "k-ary-randomized-response"), ("labels, capped", "hadamard-response"),
           ("cells, capped", "k-ary-randomized-response")}  # fmt: skip
# Of these settings the candidate "item-wise" changed, to a smaller error at the same promise. Lines, cells and nested squares: reports are
# as sharp as the rate allows (padded exponential, where e^(-rate d/2) gave away less than it might), at the price of one more possible
# report (bits). Any number of items: what is drawn is accounted for report by report as well, so that item rates are larger, and what is
# left if the shuffler colludes is less.
SHARPER = ("line of users", "cells of users", "nested squares", "circle, any number of items", "clusters, any number of items")
# What a candidate is told apart by, besides its protocol, encoding and trust: the total shape of the noise.
Key = tuple[str, str | None, str, int | None]


def same(now: object, before: object, close: float = CLOSE) -> bool:
    """Numbers up to a relative 1e-9 (null stands for infinity), all else exactly."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(name in now and same(now[name], value, close) for name, value in before.items())
    if before is None:
        return now is None or now == math.inf
    if isinstance(before, int | float) and not isinstance(before, bool):
        return isinstance(now, int | float) and math.isclose(now, before, rel_tol=close)
    return now == before


def said(guarantee: ms.Guarantee) -> Described:
    """A guarantee as it is kept in the file; how distances are measured is told in other words since (`between`)."""
    names = ("epsilon", "delta", "distance", "unit", "shape", "protects", "bound", "rounds", "items")
    trust = {"trusted": guarantee.trust.trusted, "honest_reports": guarantee.trust.honest_reports}
    return {name: getattr(guarantee, name) for name in names} | trust


def without_between(guarantee: Described) -> Described:
    return {name: value for name, value in guarantee.items() if name != "between"}


def told(one: Any) -> Described:
    """All numbers of a candidate: the parameters of its mechanism, of the randomizer or noise inside, and its details."""
    parts = [one.mechanism, *(getattr(one.mechanism, name, None) for name in ("randomizer", "noise"))]
    found: Described = {}
    for part in parts:
        if hasattr(part, "model_dump"):
            found |= part.model_dump()
    return {**found, **one.details}


def unbiased_error(one: Any, query: ms.Query, users: int) -> float:
    """How far a candidate is off in the measure of the file: that of histograms was the error of unbiased shares, for people spread
    evenly. Plans tell that of the shares that can be true since, which is simulated, for the worst of three kinds of people."""
    if not isinstance(query, ms.Histogram) or not isinstance(one.mechanism, Frequencies):
        return float(one.expected_error)
    variances = Inversion.of(one.mechanism.randomizer).variances(np.full(query.cells, 1.0 / query.cells))
    return math.sqrt(2.0 / math.pi) * float(np.mean(np.sqrt(variances / users)))


def key_of(one: Any) -> Key:
    return one.protocol, one.encoding, one.trusted, one.details.get("shape")


def key_before(row: Described) -> Key:
    return row["protocol"], row["encoding"], row["trusted"], row["details"].get("shape")


def differences(now: Any, row: Described, error: float) -> list[str]:
    """What of a candidate is not as it was, in words."""
    # The randomizer of single items follows from its rate, and its table of distances is kept as a digest only.
    details = {name: value for name, value in row["details"].items() if name != "randomizer" and value is not None}
    numbers = told(now)
    if str(row["guarantee"]["bound"]).endswith("rarely clamped"):  # it may be accounted exactly by now, as whoever verifies it does
        row["guarantee"]["bound"] = now.guarantee.bound
    pairs: dict[str, tuple[object, object]] = {
        "expected_error": (error, row["expected_error"]),
        "guarantee": (said(now.guarantee), without_between(row["guarantee"])),
        "fallback": (said(now.fallback), without_between(row["fallback"])),
        "details": ({name: numbers.get(name) for name in details}, details),
    }
    if "bits_per_user" in row:
        pairs["bits_per_user"] = (now.bits_per_user, row["bits_per_user"])
    room = {"tree-laplace": {"expected_error": SIMULATED}, "item-wise": {"expected_error": DRAWN}}.get(now.protocol, {})
    close = SEARCHED if now.protocol == "item-wise" else CLOSE
    return [f"{name} is {after}, was {before}" for name, (after, before) in pairs.items() if not same(after, before, room.get(name, close))]


def renamed(row: Described) -> Described:
    return {**row, "guarantee": {**row["guarantee"], "bound": "beyond-blanket"}}


def worse(now: Any, row: Described, part: float, error: float) -> list[str]:
    """What of a candidate is worse than it was, in words: its promise, its bits, or an error above `part` of what it was."""
    promise, before = said(now.guarantee), without_between(row["guarantee"])
    words = [
        f"{name} is {promise[name]}, was {value}" for name, value in before.items() if name != "bound" and not same(promise[name], value)
    ]
    if promise["bound"] not in ("blanket", "beyond-blanket"):
        words.append(f"the bound is {promise['bound']}")
    if not 0.0 < error <= part * row["expected_error"]:
        words.append(f"expected_error is {error}, was {row['expected_error']}")
    if now.fallback.epsilon <= row["fallback"]["epsilon"] or now.bits_per_user > row.get("bits_per_user", math.inf):
        words.append("it is better, and no report is stronger: how?")
    return words


def not_sharper(now: Any, row: Described) -> list[str]:
    """What of item-wise reports is not better than it was, in words."""
    kept = {
        "the error is not clearly smaller": now.expected_error < 0.9 * row["expected_error"],
        "the item rate is smaller": now.item_rate >= row["details"]["item_rate"] * (1.0 - 1e-9),
        "the guarantee is another": same(said(now.guarantee), without_between(row["guarantee"])),
    }
    return [words for words, true in kept.items() if not true]


def better(name: str) -> list[Described]:
    """The candidates of a setting that need less noise than they did."""
    return list(JOINT[name]["candidates"]) if name in JOINT else []


def test_what_changed_became_better() -> None:
    for name in JOINT:
        before = {key_before(row): row for row in BEFORE[name]["candidates"]}
        for row in better(name):
            old = before[key_before(row)]
            assert row["expected_error"] <= old["expected_error"]
            assert row["bits_per_user"] <= old["bits_per_user"]
            promises = [{**without_between(one["guarantee"]), "bound": ""} for one in (row, old)]
            assert promises[0] == promises[1]
    assert sum(len(better(name)) for name in JOINT) == 17


def test_there_are_sixty_settings() -> None:
    assert len(SETTINGS) == 60
    assert [one["name"] for one in SETTINGS] == list(BEFORE)


@pytest.mark.parametrize(
    "setting", [pytest.param(one, id=one["name"], marks=[pytest.mark.slow] if one["slow"] else []) for one in SETTINGS]
)
def test_candidates_are_as_they_were(setting: Described) -> None:
    """New candidates may have come; none of the old ones is gone or has other numbers, but for those that are better and say why."""
    target, query = ms.Target(**setting["target"]), query_of(setting["query"])
    plan = ms.plan(query, target, users=setting["users"], honest=setting["honest"], protocols=setting["only"], **setting["options"])
    found = {key_of(one): one for one in plan.candidates}
    before = {key_before(row): row for row in [*BEFORE[setting["name"]]["candidates"], *better(setting["name"])]}
    assert set(before) <= set(found), sorted(map(str, set(before) - set(found)))
    changed = {}
    for key, row in before.items():
        name, error = (setting["name"], key[0]), unbiased_error(found[key], query, setting["users"])
        if name in BETTER:
            changed[str(key)] = worse(found[key], row, BETTER[name], error)
        elif setting["name"] in SHARPER and key[0] == "item-wise":
            changed[str(key)] = not_sharper(found[key], row)
        else:
            changed[str(key)] = differences(found[key], renamed(row) if name in RENAMED else row, error)
    assert not any(changed.values()), {key: words for key, words in changed.items() if words}

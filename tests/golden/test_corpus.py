"""Results that every processor computes alike agree with the recording `v0`.

Compared here: public names, kinds, formats and statements (h), the vectors of the JavaScript client
(d), and the bytes of reports, tallies and shuffled batches (c). All other sections hold floats that
go through BLAS, FFT or libm, whose last digits differ between processors. Of plans (a) numbers are
compared up to a relative 1e-8, simulated errors up to a quarter (a last digit can change a draw and
all draws after it), and all else exactly, but for digests. The upper
ends of bands of amplification (b) must not grow. The rest is compared, on the machine that recorded
it, by `python -m tests.golden.corpus compare tests/golden/v0`.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.golden.corpus import amplification, names, recording, rounds, vectors
from tests.golden.corpus.masks import parts_of_page, seeded_system
from tests.golden.corpus.plans import plan_of_setting
from tests.golden.settings import SETTINGS, Described
from tests.tables import check_all

RECORDED = Path(__file__).parent / "v0"
CLOSE = 1e-8
"""The relative difference that numbers of a plan may have."""
SEARCHED = 1e-5
"""The same for rates of item-wise reports, which are searched."""
SIMULATED = 0.25
"""The same for errors that are simulated."""
ERRORS = {"expected_error", "other_errors", "standard_error", "error", "error_without"}
DIGESTS = {"checksum", "digest"}
LATER = {"damage"}
"""Fields of plans and tasks that the recorded version did not have."""


def changes(old: Any, new: Any, where: str = "plan", close: float = CLOSE) -> Iterator[str]:
    """Differences of two JSON values as text: numbers by more than `close`, others exactly."""
    if isinstance(old, dict) and isinstance(new, dict):
        if old.get("protocol") == "item-wise" or old.get("name") == "item-wise":
            close = SEARCHED
        simulated = old.get("simulation_error") is not None or "error_without" in old
        for name in sorted((old.keys() | new.keys()) - DIGESTS - (LATER - old.keys())):
            room = close
            if name == "regret" or (simulated and name in ERRORS):
                room = SIMULATED
            elif name == "simulation_error":
                room = 2 * SIMULATED
            yield from changes(old.get(name), new.get(name), f"{where}.{name}", room)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changes(before, after, f"{where}[{index}]", close)
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=close, abs_tol=1e-15):
            yield f"{where} is {new!r}, was {old!r}"
    elif type(old) is not type(new) or old != new:
        yield f"{where} is {new!r}, was {old!r}"


@functools.cache
def recorded_plans() -> recording.Items:
    return recording.read(RECORDED, "plans")


def marked(setting: Described) -> Any:
    return pytest.param(
        setting, id=setting["name"], marks=[pytest.mark.slow] if setting["slow"] else []
    )


@pytest.mark.thorough
@pytest.mark.parametrize("setting", [marked(setting) for setting in SETTINGS])
def test_plans_of_the_settings_are_as_recorded(setting: Described) -> None:
    """Every candidate, its guarantees and its errors, and the task of the choice."""
    old = json.loads(recorded_plans()[setting["name"]]["plan"])
    new = json.loads(plan_of_setting(setting).to_json())
    assert list(changes(old, new)) == []


def test_every_setting_is_recorded_and_changes_are_seen() -> None:
    assert {setting["name"] for setting in SETTINGS} == set(recorded_plans())
    assert len(SETTINGS) == 60
    old = {
        "protocol": "polya-shuffle",
        "rate": 0.5,
        "rows": [1, 2.0],
        "text": "a",
        "digest": "b",
        "none": None,
    }
    assert list(changes(old, {**old, "rate": 0.5 * (1.0 + 1e-9), "digest": "c"})) == []
    for name, value in {
        "rate": 0.5 * (1.0 + 1e-7),
        "rows": [1],
        "text": "b",
        "none": 0.0,
        "more": 1,
    }.items():
        assert list(changes(old, {**old, name: value})) == [
            f"plan.{name} is {value!r}, was {old.get(name)!r}"
        ]
    assert list(changes(old, {**old, "rows": [2, 2.1]})) == [
        "plan.rows[0] is 2, was 1",
        "plan.rows[1] is 2.1, was 2.0",
    ]
    items = {
        "protocol": "item-wise",
        "item_rate": 2.0,
        "expected_error": 1.0,
        "simulation_error": 0.1,
    }
    near = {**items, "item_rate": 2.00001, "expected_error": 1.2, "simulation_error": 0.15}
    assert list(changes(items, near)) == []
    beyond = {**items, "item_rate": 2.0001, "expected_error": 1.5, "simulation_error": 0.3}
    assert len(list(changes(items, beyond))) == 3
    exact = {"protocol": "polya-shuffle", "expected_error": 1.0, "simulation_error": None}
    assert len(list(changes(exact, {**exact, "expected_error": 1.001}))) == 1


def without_releases(items: recording.Items) -> recording.Items:
    """Rounds without what is estimated from them, which is floats."""
    return {
        name: {field: value for field, value in fields.items() if "release" not in field}
        for name, fields in items.items()
    }


QUICK_BANDS = (
    "AmongDummies",
    "Channel",
    "ClusteredResponse",
    "Duchi",
    "ExponentialMechanism",
    "GenericLDP",
    "HadamardResponse",
    "Harmony",
    "KaryRandomizedResponse",
    "LocalHash",
    "PaddedExponential",
    "SubsetExponential",
    "SubsetSelection",
)
"""Randomizers whose bands take less than a tenth of a second."""
BAND_TOLERANCE = 1e-6


def worse_bands(old: recording.Fields, new: recording.Fields) -> Iterator[str]:
    """Bands that became wider above, or contradict the recorded or their own other end."""
    for delta, before in old.items():
        after = new[delta]
        if "refused" in before or "refused" in after:
            if before != after:
                yield f"{delta}: {after}, was {before}"
            continue
        upper, lower = (float.fromhex(after[end]) for end in ("upper", "lower"))
        old_upper, old_lower = (float.fromhex(before[end]) for end in ("upper", "lower"))
        if not upper <= old_upper * (1.0 + BAND_TOLERANCE):
            yield f"{delta}: the upper end is {upper!r}, was {old_upper!r}"
        if not old_lower * (1.0 - BAND_TOLERANCE) <= upper:
            yield f"{delta}: the upper end {upper!r} is below the lower end {old_lower!r} of before"
        if not lower <= upper:
            yield f"{delta}: the lower end {lower!r} is above the upper end {upper!r}"


@check_all("name", QUICK_BANDS)
def test_bands_of_amplification_do_not_get_worse(name: str) -> None:
    recorded = recording.read(RECORDED, "amplification")
    randomizer = amplification.examples()[name]
    for users in (10**3, 10**6):
        old = {"delta 1e-06": recorded[f"{name}, {users} users"]["delta 1e-06"]}
        new = {"delta 1e-06": amplification.band(randomizer, users, 1e-6)}
        assert list(worse_bands(old, new)) == []


@pytest.mark.slow
def test_no_band_of_amplification_gets_worse() -> None:
    recorded = recording.read(RECORDED, "amplification")
    new = amplification.record()
    assert recorded.keys() == new.keys()
    assert {name: list(worse_bands(recorded[name], new[name])) for name in new} == {
        name: [] for name in new
    }


def test_worse_bands_are_seen() -> None:
    def field(upper: float, lower: float) -> recording.Fields:
        return {"delta": {"upper": upper.hex(), "lower": lower.hex(), "bound": "clones"}}

    old = field(1.0, 0.5)
    assert list(worse_bands(old, old)) == []
    assert list(worse_bands(old, field(0.9, 0.4))) == []
    for upper, lower in ((1.00001, 0.5), (0.49, 0.4), (0.9, 0.91), (math.nan, 0.5)):
        assert list(worse_bands(old, field(upper, lower))), (upper, lower)
    assert list(worse_bands(old, {"delta": {"refused": "InputError"}}))


@pytest.mark.thorough
def test_names_kinds_formats_and_statements_are_as_recorded() -> None:
    assert list(recording.differences(recording.read(RECORDED, "names"), names.record())) == []


@pytest.mark.thorough
def test_vectors_of_the_javascript_client_are_as_recorded() -> None:
    assert list(recording.differences(recording.read(RECORDED, "vectors"), vectors.record())) == []


@pytest.mark.thorough
def test_reports_tallies_and_shuffled_batches_are_as_recorded() -> None:
    old, new = (
        without_releases(items) for items in (recording.read(RECORDED, "rounds"), rounds.record())
    )
    assert len(old) == 36
    assert list(recording.differences(old, new)) == []


def test_differences_name_item_and_both_values(tmp_path: Path) -> None:
    old: recording.Items = {
        "one": {"exit code": 0, "stdout": "a\nb"},
        "gone": {},
        "same": {"parts": (1, 2)},
    }
    recording.write(tmp_path, "section", old)
    assert list(recording.differences(recording.read(tmp_path, "section"), old)) == []
    new: recording.Items = {
        "one": {"exit code": 2, "stdout": "a\nc"},
        "new": {},
        "same": {"parts": (1, 2)},
    }
    told = list(recording.differences(recording.read(tmp_path, "section"), new))
    assert told == [
        ("gone", "(recorded)", "(not recorded)"),
        ("new", "(not recorded)", "(recorded)"),
        ("one: exit code", "0", "2"),
        ("one: stdout", "2: b", "2: c"),
    ]
    without = [
        item
        for item, *_ in recording.differences(recording.read(tmp_path, "section"), new, texts=False)
    ]
    assert without == ["gone", "new", "one: exit code"]


def test_tags_and_texts_of_a_page_are_apart() -> None:
    parts = parts_of_page('<p class="x" title="Words">Hello <b>you</b></p>')
    assert parts == {"tags": "<p class=x title>\n<b>\n</b>\n</p>", "text": "Hello\nyou"}


def test_randomness_of_the_system_is_seeded_inside_only() -> None:
    import secrets

    drawn = []
    for seed in ("a", "a", "b"):
        with seeded_system(seed):
            drawn.append(secrets.token_hex(16))
    assert drawn[0] == drawn[1] != drawn[2]
    assert secrets.token_hex(16) != secrets.token_hex(16)

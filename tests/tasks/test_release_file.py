"""Release files: the answer is recomputed from the tally, and edits are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.catalogue.planned_tasks import KINDS, planned, values_of
from tests.tables import check_all

from metricshuffle.errors import InputError, PlanError
from metricshuffle.models import content_digest
from metricshuffle.randomness import Randomness
from metricshuffle.tasks import Release


@cache
def release_of(kind: str) -> Release:
    return planned(kind).run(values_of(kind), Randomness.seeded(7))


def resigned(document: dict[str, Any]) -> str:
    """Text of a release with a valid checksum, as a forger would write it."""
    content = {name: value for name, value in document.items() if name != "checksum"}
    return json.dumps({**content, "checksum": content_digest(content)})


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_comes_back(kind: str, tmp_path: Path) -> None:
    """Value, error, interval, guarantees and remarks survive a file, and so does the text."""
    release = release_of(kind)
    release.save(str(tmp_path / "release.json"))
    back = Release.load(str(tmp_path / "release.json"))
    assert str(back) == str(release)
    assert back.to_json() == release.to_json()
    assert (back.guarantee, back.if_shuffler_colludes) == (
        release.guarantee,
        release.if_shuffler_colludes,
    )
    assert (back.reports, back.round, back.rounds, back.plan) == (
        release.reports,
        1,
        release.task.rounds,
        planned(kind).digest,
    )
    assert back.raw_values_seen
    assert back.unsafe_seeded
    for level in (0.5, 0.99):
        assert np.array_equal(np.asarray(back.interval(level)), np.asarray(release.interval(level)))


@check_all("kind", KINDS)
def test_the_document_is_json_as_the_standard_has_it(kind: str) -> None:
    """No infinities and no NaN: null stands where there is no bound."""

    def strange(constant: str) -> None:
        raise AssertionError(constant)

    for text in (release_of(kind).to_json(), planned(kind).to_json(), planned(kind).task.to_json()):
        assert json.loads(text, parse_constant=strange)["format"].startswith("metricshuffle-")


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "value": lambda document: document.update(value=document["value"] + 1),
    "interval": lambda document: document["interval_95"].__setitem__(0, 0.0),
    "standard error": lambda document: document.update(standard_error=0.1),
    "reports": lambda document: document.update(reports=41),
    "guarantee": lambda document: document["guarantee"].update(epsilon=0.1),
    "sentence": lambda document: document["guarantee"].update(sentence="Everything is hidden."),
    "seeded": lambda document: document.update(unsafe_seeded=False),
    "raw values": lambda document: document.update(raw_values_seen=False),
    "tally": lambda document: document["tally"]["sums"].update({"0": [7]}),
    "people": lambda document: document["tally"].update(people=41),
    "plan": lambda document: document.update(plan="0" * 64),
    "something more": lambda document: document.update(note="signed by the analyst"),
    "something less": lambda document: document.pop("expected_error"),
}


@check_all("edit", EDITS)
def test_an_edited_release_is_refused(edit: str) -> None:
    """Every edit without a new checksum is told as such."""
    document = json.loads(release_of("unary sum").to_json())
    EDITS[edit](document)
    with pytest.raises(
        PlanError,
        match="this release was edited or damaged: its checksum does not match its content",
    ):
        Release.from_json(json.dumps(document))


SIGNED: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "another value": (
        "unary sum",
        lambda document: document.update(value=document["value"] + 1),
        "its value is not what its tally gives",
    ),
    "another share": (
        "labels",
        lambda document: document["value"][0].update(share=0.9),
        "its value is not what its tally gives",
    ),
    "a row less": (
        "labels",
        lambda document: document["value"].pop(),
        "its value is not what its tally gives",
    ),
    "no value": (
        "map",
        lambda document: document.pop("value"),
        "its value is not what its tally gives",
    ),
    "too few people": (
        "unary sum",
        lambda document: document["tally"].update(people=29),
        "at least 30 honest",
    ),
    "other sums": (
        "labels",
        lambda document: document["tally"]["sums"].update({"0": [1, 2, 3]}),
        "counts that sum to",
    ),
    "no sums": (
        "labels",
        lambda document: document["tally"].pop("sums"),
        "its tally cannot be read",
    ),
    "endless sums": (
        "labels",
        lambda document: document["tally"]["sums"].update({"0": [float("inf")]}),
        "its tally cannot be read",
    ),
    "another task": (
        "labels",
        lambda document: document["task"].update(honest=2),
        "digest does not match",
    ),
    "no task": ("labels", lambda document: document.pop("task"), "this is not a task"),
    "another round": (
        "labels",
        lambda document: document["tally"].update(round=2),
        "its tally cannot be read|round must be",
    ),
}


@check_all("lie", SIGNED)
def test_a_release_signed_anew_must_follow_from_its_tally(lie: str) -> None:
    """The value is recomputed, and the batch must be one of the task."""
    kind, edit, told = SIGNED[lie]
    document = json.loads(release_of(kind).to_json())
    edit(document)
    with pytest.raises(InputError, match=told):
        Release.from_json(resigned(document))


OLD = sorted((Path(__file__).parent / "releases_version_2").glob("*.json"))


@check_all("path", OLD)
def test_releases_of_version_2_are_read(path: Path) -> None:
    """Their intervals are recomputed, not compared; shares still are."""
    document = json.loads(path.read_text())
    release = Release.load(path)
    if isinstance(document["value"], list):
        assert np.allclose(
            release.value["share"], [row["share"] for row in document["value"]], atol=1e-9
        )
        assert release.estimate.smoothed == (
            path.stem in ("smoothed_line", "smoothed_map", "users_items")
        )
    again = Release.from_json(release.to_json())
    assert str(again) == str(release)
    edited = {
        **document,
        "value": [{**row, "share": 0.5} for row in document["value"]]
        if path.stem != "sum"
        else 3.0,
    }
    with pytest.raises(PlanError, match="its value is not what its tally gives"):
        Release.from_json(resigned(edited))


def test_there_are_old_releases_of_every_kind() -> None:
    assert {path.stem for path in OLD} >= {
        "smoothed_line",
        "smoothed_map",
        "line_with_floor",
        "single_thresholds",
        "labels",
        "sum",
    }


@check_all(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ("[]", "its format is None"),
        ("[" * 100_000, "nests too deeply"),
        ('{"format": "metricshuffle-release/1"}', "not 'metricshuffle-release/3'"),
    ],
)
def test_wrong_files_are_refused_as_a_release(text: str, told: str) -> None:
    """Something else, and releases of the first version, are told by their format."""
    with pytest.raises(PlanError, match=told):
        Release.from_json(text)

"""What every processor computes alike is as it was recorded in `v0`.

Compared here: public names, kinds, formats and statements (h), the vectors of the JavaScript client (d), and the bytes of reports, tallies
and shuffled batches (c). All other sections hold floats that go through BLAS, FFT or libm, whose last digits differ between processors:
`python -m tests.golden.corpus compare tests/golden/v0` compares them, on the machine that recorded them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden.corpus import names, recording, rounds, vectors
from tests.golden.corpus.masks import parts_of_page, seeded_system

RECORDED = Path(__file__).parent / "v0"


def without_releases(items: recording.Items) -> recording.Items:
    """Rounds without what is estimated from them, which is floats."""
    return {name: {field: value for field, value in fields.items() if "release" not in field} for name, fields in items.items()}


@pytest.mark.thorough
def test_names_kinds_formats_and_statements_are_as_recorded() -> None:
    assert list(recording.differences(recording.read(RECORDED, "names"), names.record())) == []


@pytest.mark.thorough
def test_vectors_of_the_javascript_client_are_as_recorded() -> None:
    assert list(recording.differences(recording.read(RECORDED, "vectors"), vectors.record())) == []


@pytest.mark.thorough
def test_reports_tallies_and_shuffled_batches_are_as_recorded() -> None:
    old, new = (without_releases(items) for items in (recording.read(RECORDED, "rounds"), rounds.record()))
    assert len(old) == 31
    assert list(recording.differences(old, new)) == []


def test_differences_name_item_and_both_values(tmp_path: Path) -> None:
    old: recording.Items = {"one": {"exit code": 0, "stdout": "a\nb"}, "gone": {}, "same": {"parts": (1, 2)}}
    recording.write(tmp_path, "section", old)
    assert list(recording.differences(recording.read(tmp_path, "section"), old)) == []
    new: recording.Items = {"one": {"exit code": 2, "stdout": "a\nc"}, "new": {}, "same": {"parts": (1, 2)}}
    told = list(recording.differences(recording.read(tmp_path, "section"), new))
    assert told == [
        ("gone", "(recorded)", "(not recorded)"), ("new", "(not recorded)", "(recorded)"),
        ("one: exit code", "0", "2"), ("one: stdout", "2: b", "2: c"),
    ]  # fmt: skip
    without = [item for item, *_ in recording.differences(recording.read(tmp_path, "section"), new, texts=False)]
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

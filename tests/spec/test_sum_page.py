"""The chapter on sums: numbered requirements, and the fields and prefixes of the code."""

from __future__ import annotations

import re
from pathlib import Path

from metricshuffle.collection.adder import share_boxes, sum_signatures
from metricshuffle.collection.adder.sum_terms import SUM_FORMAT, AdderParty, SumTerms

PAGE = (Path(__file__).parents[2] / "docs" / "spec" / "adders.md").read_text(encoding="utf-8")


def test_every_must_has_a_number() -> None:
    text = re.sub(r"(?s)```.*?```", "", PAGE)
    numbers = []
    for part in (" ".join(part.split()) for part in text.split("\n\n")):
        match = re.match(r"\*\*S([0-9]+)\.\*\* ", part)
        assert bool(match) == ("MUST" in part), part
        numbers += [int(match[1])] if match else []
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_the_page_has_the_fields_and_prefixes_of_the_code() -> None:
    for model in (SumTerms, AdderParty):
        for name in model.model_fields:
            assert f"`{name}`" in PAGE
    prefixes = (
        share_boxes.ADDER_PREFIX,
        share_boxes.TOTAL_PREFIX,
        share_boxes.TICKET_PREFIX,
        sum_signatures.NAMES_PREFIX,
        sum_signatures.STATEMENT_PREFIX,
    )
    for text in (SUM_FORMAT, *(prefix.rstrip(b"\0").decode() for prefix in prefixes)):
        assert text in PAGE

"""docs/errata.md: every number is recomputed, and every function it names exists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tests.docs import errata_amplification, errata_sums, errata_users
from tests.tables import check_all

import metricshuffle
import metricshuffle_papers
from metricshuffle.citations import PAPERS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "errata.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
PARTS = (*errata_sums.PARTS, *errata_amplification.PARTS, *errata_users.PARTS)
# Numbers that are names: of statements in a paper, of norms, of formulas with letters in them.
_ONE = r"[A-Z]?\.?\d+(?:\.\d+)?"
NAMES = re.compile(
    rf"(?:Theorem|Lemma|Fact|Table|Section|Equation|Algorithm)s? {_ONE}(?:(?:, | and | to "
    rf"){_ONE})*|\bl[12]\b|\b[rq][01]\b"
)
FORMULAS = (
    "ln((2 - p)/p)",
    "k + 2c",
    "x and x + 1",
    "2 ln(4/delta)",
    "(1 - beta)(1 + p)/(p - 1)",
    "1 - beta (1 + p)/(p - 1)",
    "e^epsilon - 1",
    "e^epsilon p - 1",
    "e^D/(e^D + 1)",
    "(e^D - 1)/(e^D + 1)",
    "(e^(g epsilon) - 1)/(e^epsilon - 1)",
    "2 ln(1/delta)/s",
    "3/8 is printed for 3/s",
    "sqrt(1.25 ln(1/delta))/alpha",
    "omega = 1/alpha",
    "sqrt(x^2/100 + y^2)",
    "scale 1/(n epsilon) on each cell",
)
NUMBER = re.compile(r"(?<![A-Za-z_])-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


@cache
def sentences(part: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    return tuple(part())


@check_all("part", PARTS)
def test_numbers_are_computed(part: Callable[[], Iterable[str]]) -> None:
    for sentence in sentences(part):
        assert sentence in TEXT, f"the page should say: {sentence}"


def test_no_number_is_left_out() -> None:
    text = re.sub(r"`[^`]*`", " ", TEXT)
    for told in (
        *PAPERS.values(),
        *(sentence for part in PARTS for sentence in sentences(part)),
        *sorted(FORMULAS, key=len, reverse=True),
    ):
        text = text.replace(told, " ")
    text = NAMES.sub(" ", text)
    left = [
        text[max(0, number.start() - 40) : number.end() + 20] for number in NUMBER.finditer(text)
    ]
    assert not left, "\n".join(left)


def test_functions_named_on_the_page_exist() -> None:
    named = set(
        re.findall(
            r"`((?:accounting|amplification|noise|metricshuffle_papers|planning|randomizers|ms)\.[A-Za-z_0-9.]+)`",
            PAGE,
        )
    )
    assert len(named) > 15
    for name in named:
        named_thing: ModuleType = (
            metricshuffle_papers if name.startswith("metricshuffle_papers.") else metricshuffle
        )
        where = named_thing.__name__
        for step in name.removeprefix("ms.").removeprefix("metricshuffle_papers.").split("."):
            where = f"{where}.{step}"
            try:
                named_thing = getattr(named_thing, step)
            except AttributeError:
                named_thing = import_module(where)


def test_every_erratum_says_what_to_use() -> None:
    sections = re.split(r"^###? ", PAGE, flags=re.M)[1:]
    for section in sections:
        if "**Claimed.**" in section:
            assert "**Counterexample.**" in section, section[:60]
            assert "**Use.**" in section, section[:60]
    assert sum("**Claimed.**" in section for section in sections) > 15

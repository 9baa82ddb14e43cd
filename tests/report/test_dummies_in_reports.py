"""Reports about a shuffler that adds dummies: who changes answers, and who must be honest."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tests.report.parsed_page import ParsedPage

import metricshuffle as ms
from metricshuffle.accounting.dummies.dummy_losses import drawn_epsilon, together_delta
from metricshuffle.report.assessment_text import assessment, fallback_text
from metricshuffle.report.method_text import _used_statements
from metricshuffle.report.report_page import report
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.report.sections.headline import headline
from metricshuffle.spaces import Space, users_of


@cache
def subject(floor: Any) -> ReportSubject:
    plan = ms.plan(
        ms.Histogram(ms.Categories(["a", "b", "c"])),
        ms.Target(1, 1e-6, 1),
        300,
        protocols=["shuffler-noise"],
        floor=floor,
        max_local_epsilon=None if floor == "never" else 3.0,
    )
    return ReportSubject.of(plan)


def test_answers_that_are_sent_as_they_are_are_not_called_randomized() -> None:
    plain = " ".join(assessment(subject("never")))
    assert "They send it as it is" in plain
    assert "Before anything leaves" not in plain
    assert "Before anything leaves a person's device" in " ".join(assessment(subject("always")))


@pytest.mark.parametrize("floor", ["never", "always"])
def test_no_honest_people_are_counted_on(floor: Any) -> None:
    words = " ".join([*assessment(subject(floor)), *headline(subject(floor)).sentences])
    assert "nobody else need be honest" in words
    assert "counted on to be honest" not in words
    assert "people who follow the protocol" not in words


def test_a_floor_is_not_called_no_protection() -> None:
    assert fallback_text(subject("always").facts) == "3"
    assert fallback_text(subject("never").facts) == "in effect no protection"
    assert not any("on paper" in number.beside for number in headline(subject("never")).numbers)


@pytest.mark.thorough
def test_the_page_does_not_advise_on_honest_people() -> None:
    text = ParsedPage(report(subject("always"))).text
    assert "--honest" not in text
    assert "in effect no protection" not in text


def test_drawn_items_rest_on_the_statement_about_draws() -> None:
    plan = ms.plan(
        ms.UserHistogram(users_of(Space(ms.Integers(0, 4)))),
        ms.Target(1, 1e-6, 2),
        300,
        protocols=["shuffler-noise"],
        draw=2,
    )
    used = list(_used_statements(plan.task))
    assert drawn_epsilon in used
    assert together_delta not in used

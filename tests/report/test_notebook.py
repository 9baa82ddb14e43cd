"""Notebook cards and charts of every result, with and without drawing packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.catalogue.planned_tasks import planned, values_of
from tests.report.parsed_page import ParsedPage

import metricshuffle as ms
import metricshuffle_papers as papers
from metricshuffle.amplification.amplify import amplify_metric
from metricshuffle.display import HtmlRepr, Plottable
from metricshuffle.planning.advice import worth_showing
from metricshuffle.privacy.profile import PureProfile
from metricshuffle.randomizers import KaryRandomizedResponse
from metricshuffle.report.charts.chart import Chart
from metricshuffle_papers.compare.linear import LinearMethod
from metricshuffle_papers.compare.users import ComparedMethod

pytestmark = pytest.mark.thorough

HOSTILE = '<b>&"x'
KINDS = ("unary sum", "curator's sum", "centroid", "labels", "map", "users' mean", "two rounds")


def card(thing: HtmlRepr) -> ParsedPage:
    """As a browser reads it; nothing is loaded, and no script runs."""
    page = ParsedPage(thing._repr_html_())
    assert not page.open
    assert not page.targets
    assert "script" not in page.tags
    return page


def read(words: object) -> str:
    return " ".join(str(words).split())


def amplification(users: int = 1000) -> ms.Amplification:
    return ms.amplify(KaryRandomizedResponse(5, epsilon=1.0), users=users)


def comparison(kind: type[Any]) -> Any:
    strength = (
        {"standard_error": 0.1, "strength": 2.0}
        if kind is papers.UserComparison
        else {"strength": 2.0}
    )
    method: type[Any] = ComparedMethod if kind is papers.UserComparison else LinearMethod
    methods = tuple(
        method(name=f"{hides} {HOSTILE}", model=model, hides=hides, error=1.0, **strength)
        for model in ("central", "local")
        for hides in ("user", "earth mover")
    )
    fields = {
        "users": 300,
        "epsilon": 1.0,
        "rate": 0.5,
        "delta": 1e-9,
        "diameter": 4.0,
        "methods": methods,
    }
    more = (
        {"items": 10, "runs": 12}
        if kind is papers.UserComparison
        else {"constant": 1.0, "width": 4.0}
    )
    return kind(**fields, **more)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_shows_its_candidates_and_both_promises(kind: str) -> None:
    plan = planned(kind)
    page = card(plan)
    shown = worth_showing(plan)
    assert page.tags.count("tr") == 1 + len(shown)
    assert all(plan.candidates[index].protocol in page.text for index in shown)
    assert ("more, each as good as one of these or worse" in page.text) == (
        len(shown) < len(plan.candidates)
    )
    promises = (
        [plan.guarantee]
        if plan.choice.trusted == "nobody"
        else [plan.guarantee, plan.if_shuffler_colludes]
    )
    for told in (page, card(plan.task), card(plan.choice)):
        assert all(read(promise) in told.text for promise in promises)
    assert read(plan.guarantee) in card(plan.guarantee).text


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_shows_its_answer_both_promises_and_what_spoils_them(kind: str) -> None:
    plan = planned(kind)
    release = plan.run(values_of(kind), ms.Randomness.seeded(1))
    page = card(release)
    promises = (
        [plan.guarantee]
        if plan.choice.trusted == "nobody"
        else [plan.guarantee, plan.if_shuffler_colludes]
    )
    assert all(read(promise) in page.text for promise in promises)
    assert "UNSAFE: seeded randomness was used" in page.text
    assert "whoever ran it saw the raw values" in page.text
    if isinstance(release.value, float):
        assert f"{release.value:,.{release.decimals}f}" in page.text
    if plan.rounds > 1:
        assert "round 1 of 2" in page.text


def test_the_largest_of_many_cells_are_shown() -> None:
    query = ms.Histogram(ms.Integers(0, 29))
    plan = ms.plan(
        query, ms.Target(8, 0, 1), users=60, trusted="nobody", protocols=["bounded-geometric"]
    )
    page = card(plan.run([3] * 60))
    assert "The 8 largest of 30; to_frame() has all." in page.text
    assert page.tags.count("tr") == 9


OTHERS: dict[str, Callable[[], HtmlRepr]] = {
    "profile": lambda: PureProfile(0.5),
    "shuffled profile": lambda: amplification().upper,
    "lower profile": lambda: amplification().lower,
    "amplification": amplification,
    "groups": lambda: ms.amplify(ms.Groups([(ms.GenericLDP(1.0), 50), (ms.GenericLDP(0.5), 50)])),
    "simulation": lambda: ms.simulate(planned("unary sum"), 20),
    "audit": lambda: ms.audit(planned("unary sum"), batches=40),
    "users": lambda: comparison(papers.UserComparison),
    "linear": lambda: comparison(papers.LinearComparison),
}


@pytest.mark.parametrize("name", OTHERS)
def test_everything_else_is_shown(name: str) -> None:
    thing = OTHERS[name]()
    page = card(thing)
    assert len(page.text) > 100
    if isinstance(thing, ms.Amplification):
        assert read(thing.explain(1e-6)) in page.text
    if isinstance(thing, ms.Audit):
        assert read(str(thing).splitlines()[0]) in page.text
    if isinstance(thing, ms.GroupsAmplification):
        assert all(read(answer.member[1:]) in page.text for answer in thing)


def test_numbers_in_cards_are_rounded_against_us() -> None:
    page = card(PureProfile(1 / 3))
    assert "0.3334" in page.texts["td"]
    band = amplification(10_000).epsilon(1e-6)
    lower, upper = (float(cell) for cell in card(amplification(10_000)).texts["td"][5:7])
    assert lower <= band.lower <= band.upper <= upper


class NeverCertified(ms.PrivacyProfile):
    """One whose numbers cannot be had."""

    def delta(self, epsilon: float, distance: float) -> float:
        raise ms.NotCertified("there are too many cells.")


def test_what_cannot_be_computed_is_told_in_the_card() -> None:
    page = card(NeverCertified())
    assert "NeverCertified" in page.text
    assert "there are too many cells." in page.text


def test_labels_and_units_are_escaped() -> None:
    label = HOSTILE
    unit = HOSTILE
    labels = ms.plan(
        ms.Histogram(ms.Categories([label, "b"])), ms.Target(1, 0, 1), users=20, trusted="nobody"
    )
    numbers = ms.plan(
        ms.Sum(ms.Integers(0, 3, unit)), ms.Target(1, 0, 1), users=20, trusted="nobody"
    )
    for thing in (
        labels,
        labels.run([label] * 20),
        numbers,
        numbers.run([1] * 20),
        comparison(papers.UserComparison),
    ):
        page = card(thing)
        assert HOSTILE in page.text
        assert HOSTILE not in page.html


@pytest.fixture
def no_altair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)


PLOTS: dict[str, Callable[[], Any]] = {
    "plan": lambda: planned("unary sum").plot(),
    "number": lambda: planned("unary sum").run(values_of("unary sum")).plot(),
    "labels": lambda: planned("labels").run(values_of("labels")).plot(level=0.8),
    "line": lambda: planned("line").run(values_of("line")).plot(),
    "map": lambda: planned("map").run(values_of("map")).plot(),
    "delta of a profile": lambda: PureProfile(0.5).plot(distance=[1, 2, 4]),
    "epsilon of a profile": lambda: amplify_metric(1.0, 3.0, 3.0, users=1000).upper.plot(
        delta=[1e-3, 1e-6], distance=3
    ),
    "lower bound": lambda: amplification().lower.plot(),
    "amplification": lambda: amplification().plot(),
    "amplification by distance": lambda: amplify_metric(1.0, 3.0, 3.0, users=1000).plot(delta=1e-6),
    "groups": lambda: ms.amplify(
        ms.Groups([(ms.GenericLDP(1.0), 50), (ms.GenericLDP(0.5), 50)])
    ).plot(),
}


@pytest.mark.usefixtures("no_altair")
@pytest.mark.parametrize("name", PLOTS)
def test_a_chart_shows_itself_as_svg(name: str) -> None:
    chart = PLOTS[name]()
    assert isinstance(chart, Chart)
    drawn = chart._repr_html_()
    assert drawn is not None
    page = ParsedPage(drawn)
    assert {"svg", "path"} <= set(page.tags)
    assert not page.targets
    assert len(page.ids) == len(set(page.ids))
    assert read(chart.description) in page.text
    assert chart.to_dict()["$schema"].startswith("https://vega.github.io/schema/vega-lite/")


@pytest.mark.usefixtures("no_altair")
def test_charts_of_one_notebook_do_not_share_ids() -> None:
    drawn = [PureProfile(rate).plot()._repr_html_() for rate in (0.5, 0.7)]
    first, second = (set(ParsedPage(one).ids) for one in drawn)
    assert first
    assert not first & second


@pytest.mark.parametrize("name", ["plan", "labels", "map", "epsilon of a profile", "amplification"])
def test_where_altair_is_installed_charts_are_its_own(name: str) -> None:
    altair = pytest.importorskip("altair")
    chart = PLOTS[name]()
    assert isinstance(chart, altair.TopLevelMixin)
    spec = chart.to_dict()  # validates
    assert spec["config"]["background"] == "#ffffff"


def test_what_has_no_chart_is_told_in_words() -> None:
    from metricshuffle.report.notebook import plot

    with pytest.raises(ms.InputError, match="there is no chart of Simulation"):
        plot(ms.simulate(planned("unary sum"), 2))


def test_plots_are_refused_in_words() -> None:
    profile = PureProfile(0.5)
    with pytest.raises(ms.InputError, match="one to 5 curves: distance must be"):
        profile.plot(distance=[1, 2, 3, 4, 5, 6])
    with pytest.raises(ms.InputError, match="knows of none"):
        profile.plot(delta=1e-6)
    with pytest.raises(ms.InputError, match="nothing to plot"):
        profile.plot(distance=0)
    with pytest.raises(ms.InputError, match="any two inputs, which have no distance"):
        amplification().plot(delta=1e-6)
    with pytest.raises(ms.InputError, match="delta must be"):
        profile.plot(delta=2, distance=1)


def test_without_templates_a_card_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook never fails to show a plan because a package is missing."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    plan = planned("labels")
    for thing in (plan, plan.run(values_of("labels"))):
        page = ParsedPage(thing._repr_html_())
        assert page.tags == ["pre"]
        assert read(thing) in page.text
        assert "pip install 'metricshuffle[report]'" in page.text


@pytest.mark.usefixtures("no_altair")
@pytest.mark.parametrize("missing", ["vl_convert", "jinja2"])
def test_a_chart_that_cannot_be_drawn_says_what_is_missing(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    chart = PureProfile(0.5).plot()
    assert chart._repr_html_() is None  # then a notebook shows the line below
    assert (
        repr(chart) == "Chart('What is promised'; to draw it: pip install 'metricshuffle[report]')"
    )
    assert chart.to_dict()["data"]["values"]


def test_what_is_plotted_is_shown_and_says_so() -> None:
    """Every class with a chart tells in its help what it can be asked for."""
    for kind in (
        ms.Plan,
        ms.Release,
        ms.PrivacyProfile,
        ms.LowerProfile,
        ms.Amplification,
        ms.GroupsAmplification,
    ):
        assert issubclass(kind, Plottable)
        assert (kind.plot.__doc__ or "").strip()
    for other in (
        ms.Task,
        ms.Guarantee,
        ms.Candidate,
        ms.Simulation,
        ms.Audit,
        papers.LinearComparison,
        papers.UserComparison,
    ):
        assert issubclass(other, HtmlRepr)
        assert not hasattr(other, "plot")

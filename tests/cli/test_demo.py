"""The demo's page: complete, self-contained, and saying the numbers of the plans it was made from."""

from __future__ import annotations

import io
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tools.picture import picture

from metricshuffle.accounting.sums.additive import AdditiveNoise
from metricshuffle.cli import demo as demo_module
from metricshuffle.cli.demo import city_study, demo, main, snack_study, visits_study
from metricshuffle.errors import MissingExtra
from metricshuffle.noise.polya import Polya
from metricshuffle.numerics.rounding import plain
from metricshuffle.pages.numbers import epsilon_curves
from metricshuffle.pages.report import report
from metricshuffle.pages.synthetic import BANK, CITY, SNACKS, homes, river, snacks, visits
from metricshuffle.pages.users_chapter import UserStudy, city_squares, merged
from metricshuffle.pages.what_if import consequences, honest_profile
from metricshuffle.pages.words import Study, assessment, interval_text
from metricshuffle.spaces import Grid

VOID = {"meta", "br", "hr", "img", "link", "input"}
ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """Checks that tags nest, and collects the text, the links and the ids."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.words: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.seen: dict[str, int] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        found = {name: value or "" for name, value in attrs}
        self.loads += [value for name, value in found.items() if name in ("src", "href", "xlink:href", "srcset", "action", "data")]
        self.ids += [found["id"]] if "id" in found else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))


@pytest.fixture(scope="module")
def made() -> tuple[Study, Study, str, str, UserStudy]:
    """Two small studies, the page about them and what was printed, and a third study about users with many items."""
    printed = io.StringIO()
    console = Console(file=printed, width=250)
    numbers = snack_study(60, "modular", console)
    city, cells = city_study(120, "modular", console)
    visits = visits_study(120, console)
    return numbers, city, report(numbers, city, cells, visits), printed.getvalue(), visits


def test_the_page_is_well_formed_and_loads_nothing(made: tuple[Study, Study, str, str, UserStudy]) -> None:
    text = made[2]
    page = Page(text)
    assert page.open == []
    assert page.loads  # the links of the contents
    assert all(target.startswith("#") and target[1:] in page.ids for target in page.loads)
    assert len(page.ids) == len(set(page.ids))
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
    assert len(text) < 300_000
    assert page.seen["section"] == 9
    assert page.seen["figure"] == page.seen["figcaption"] == 7
    assert page.seen["title"] - 1 == page.seen["desc"] == 7  # one of each in every chart


def test_the_page_tells_both_releases(made: tuple[Study, Study, str, str, UserStudy]) -> None:
    text, printed = Page(made[2]).text, re.sub(r"\s+", " ", made[3])
    for study in made[:2]:
        release = study.release
        assert release.raw_values_seen
        assert not release.unsafe_seeded
        for told in (
            str(release.guarantee),
            str(release.if_shuffler_colludes),
            interval_text(study),
            plain(study.plan.choice.expected_error),
        ):
            assert told in text
            assert told in printed
        for one in study.plan.candidates:
            assert f"{plain(one.expected_error)} {study.plan.query.unit}" in text


def test_the_assessment_has_the_numbers_of_the_plan(made: tuple[Study, Study, str, str, UserStudy]) -> None:
    text = Page(made[2]).text
    for study in made[:2]:
        plan, one = study.plan, study.plan.choice
        paragraphs = assessment(study)
        for paragraph in paragraphs:
            assert paragraph in text
        whole = " ".join(paragraphs)
        for told in (
            f"{plan.users:,} people", f"at least {plan.honest:,} of the {plan.users:,} reports", f"{one.bits_per_user:,} bits",
            f"{one.messages_per_user} messages",
            str(one.guarantee), str(one.fallback), f"{plain(plan.query.diameter)} {plan.query.unit} apart", plan.digest[:16],
            "factor of 2.719",
            f"expected error is {plain(one.expected_error)} {plan.query.unit}", interval_text(study),
        ):  # fmt: skip
            assert told in whole


def test_the_chapter_about_users_tells_both_releases(made: tuple[Study, Study, str, str, UserStudy]) -> None:
    text, printed, study = Page(made[2]).text, re.sub(r"\s+", " ", made[3]), made[4]
    assert [plan.choice.model for _, plan, _ in study.releases] == ["local", "central"]
    for _, _, release in study.releases:
        assert release.raw_values_seen
        assert not release.unsafe_seeded
        for told in (str(release.guarantee), release.full_replacement, f"{plain(round(study.error(release), 1))} m"):
            assert told in text
    for told in (str(study.local[1].guarantee), study.local[1].full_replacement, f"{study.visits:,} visits"):
        assert told in printed
    for sentence in study.comparisons[1].sentences():
        assert sentence[1:] in text
    # both miss with probability far below 1e-6
    assert study.error(study.central[1]) < 10.0 * study.central[0].choice.expected_error
    assert study.error(study.central[1]) < study.error(study.local[1])


def test_what_the_users_chapter_compares(made: tuple[Study, Study, str, str, UserStudy]) -> None:
    """User-level privacy once, and the tree release at both rates, in both models."""
    study = made[4]
    both = merged(study)
    trees = [method for method in both.methods if method.hides == "earth mover"]
    assert sorted(method.model for method in trees) == ["central", "central", "local", "local"]
    assert len({(method.model, method.name) for method in both.methods}) == len(both.methods)
    one, other = study.comparisons
    assert one.rate * one.diameter == pytest.approx(one.epsilon)
    assert other.rate > 15.0 * one.rate
    assert other.gain("central") > one.gain("central")


def test_an_estimate_is_near_the_truth(made: tuple[Study, Study, str, str, UserStudy]) -> None:
    for study in made[:2]:  # misses with probability about 1e-9
        assert study.error < 25.0 * study.plan.choice.expected_error


def test_consequences_are_the_exact_ones(made: tuple[Study, Study, str, str, UserStudy]) -> None:
    plan = made[0].plan
    one = plan.choice
    rows = {(row.group, row.situation.split(":")[0].split(" (")[0]): row for row in consequences(plan, (one,))}
    assert next(iter(rows.values())).epsilons[0] <= plan.target.epsilon * (1 + 1e-9)
    assert rows["The shuffler colludes", "with the analyst"].epsilons == (one.local_epsilon,)
    share, rate = one.mechanism.randomizers[0].shape, one.rate  # type: ignore[union-attr]
    assert rate is not None
    half = AdditiveNoise(Polya(share * 30, rate)).epsilon(plan.target.delta, 20)
    assert rows["Users drop out or collude", "50% honest"].noise_alone[0] == pytest.approx(half, rel=1e-9)
    assert rows["Users drop out or collude", "50% honest"].epsilons[0] >= half
    assert rows["Users drop out or collude", "50% honest"].epsilons[0] > rows["Users drop out or collude", "80% honest"].epsilons[0] > 1.0
    twice, five = (rows["Someone moves farther", f"{times} times as far"].noise_alone[0] for times in (2, 5))
    assert 1.0 < twice < five < rows["Someone moves farther", "from one end to the other"].noise_alone[0]
    assert math.isfinite(honest_profile(plan, one, plan.honest).delta(1.0, 20.0))


def test_a_claim_is_called_false_from_the_right_distance() -> None:
    curves = epsilon_curves(1.0, 100, 1e-4, 200, points=4)
    exact = AdditiveNoise(Polya(100, 1.0))  # type: ignore[arg-type]
    assert curves.false_from is not None
    assert exact.epsilon(1e-4, curves.false_from) > curves.claimed(curves.false_from)
    assert exact.epsilon(1e-4, curves.false_from - 1) <= curves.claimed(curves.false_from - 1)
    assert epsilon_curves(1.0, 100, 1e-4, 20, points=2).false_from is None


def test_invented_people_are_always_the_same_and_inside() -> None:
    assert np.array_equal(snacks(40), snacks(40))
    assert SNACKS.validated(snacks(300)).max() > 500
    places = homes(300)
    assert CITY.cells(places).shape == (300, 2)
    months = visits(50)
    assert all(np.array_equal(one, other) for one, other in zip(months, visits(50), strict=True))
    assert {len(mine) for mine in months} > {8}
    grid = city_squares().domain
    assert isinstance(grid, Grid)
    assert all(len(grid.cells(mine)) == len(mine) for mine in months)
    inside = (places[:, 1] > 0.0) & (places[:, 1] < 4000.0)
    assert np.abs(places[:, 1] - river(places[:, 0]))[inside].min() >= BANK - 1e-6


def test_the_readme_picture_is_the_one_that_would_be_drawn_now() -> None:
    assert picture() == (ROOT / "docs" / "picture.svg").read_text(encoding="utf-8")


def test_the_demo_writes_one_file(made: tuple[Study, Study, str, str, UserStudy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "snack_study", lambda *_: made[0])
    monkeypatch.setattr(demo_module, "city_study", lambda *_: (made[1], CITY.cells(homes(120))))
    monkeypatch.setattr(demo_module, "visits_study", lambda *_: made[4])
    printed = io.StringIO()
    written = demo(tmp_path / "new" / "folder", console=Console(file=printed, width=200))
    assert [path.name for path in written.parent.iterdir()] == ["report.html"]
    assert written.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert str(written) in printed.getvalue()


def test_without_the_extra_a_sentence_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtra, match=r"pip install 'metricshuffle\[report\]'"):
        demo(tmp_path / "out")
    assert main(["--output", str(tmp_path / "out")]) == 2
    assert "metricshuffle[report]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--output", str(tmp_path / "file")]) == 2
    assert "cannot make the folder" in capsys.readouterr().err

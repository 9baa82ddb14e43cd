"""Page of the demo: complete, self-contained, with the numbers of its plans."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from examples.demo import demo as demo_module
from examples.demo.__main__ import main
from examples.demo.demo import city_study, demo, map_study, snack_study, visits_study
from examples.demo.error_curves import error_curves
from examples.demo.map_study import MapStudy, city_blocks
from examples.demo.report import demo_report
from examples.demo.share_panels import maps_side_by_side, share_map
from examples.demo.user_study import UserStudy, city_squares, merged
from rich.console import Console
from tests.report.parsed_page import ParsedPage
from tools.picture import picture

import metricshuffle as ms
from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.errors import InputError, MissingExtra
from metricshuffle.noise.polya import Polya
from metricshuffle.numerics.rounding import format_number
from metricshuffle.protocols.sums import Sums
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.report.assessment_text import Study, assessment
from metricshuffle.report.charts.map_scales import SHADE_COUNT, shade_indices
from metricshuffle.report.curve_data import frontier
from metricshuffle.report.failure_scenarios import ProtocolReview, consequences, honest_sum_profile
from metricshuffle.report.plan_view import plan_grid, release_facts
from metricshuffle_papers.enhancing_metric_privacy.epsilon_curves import epsilon_curves
from metricshuffle_papers.synthetic import BANK, CITY, SNACKS, homes, river, snacks, visits

ROOT = Path(__file__).parents[2]


class Made(NamedTuple):
    """Two small studies, a map, one about users with many items, their page and the output."""

    numbers: Study
    city: Study
    places: MapStudy
    months: UserStudy
    page: ParsedPage
    printed: str

    @property
    def studies(self) -> tuple[Study, Study]:
        return self.numbers, self.city


@pytest.fixture(scope="module")
def made() -> Made:
    printed = io.StringIO()
    console = Console(file=printed, width=250)
    numbers = snack_study(60, "modular", console)
    city, cells = city_study(120, "modular", console)
    places = map_study(400, console)
    months = visits_study(120, console)
    page = ParsedPage(demo_report(numbers, city, cells, places, months))
    return Made(numbers, city, places, months, page, re.sub(r"\s+", " ", printed.getvalue()))


@pytest.mark.thorough
def test_the_page_is_well_formed_and_loads_nothing(made: Made) -> None:
    page = made.page
    count = made.page.tags.count
    assert page.open == []
    assert page.targets  # the links of the contents
    assert all(target.startswith("#") and target[1:] in page.ids for target in page.targets)
    assert len(page.ids) == len(set(page.ids))
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", page.html)
    assert len(page.html) < 400_000
    assert count("section") == 10
    assert count("figure") == count("figcaption") == 8
    narrow = page.html.count('<div class="narrow">')
    assert count("title") - 1 == count("desc") == 8 + narrow  # one of each in every chart
    assert 6 <= narrow <= 8


def test_the_page_tells_both_releases(made: Made) -> None:
    text = made.page.text
    printed = made.printed
    for study in made.studies:
        release = study.release
        assert release.raw_values_seen
        assert not release.unsafe_seeded
        for told in (
            str(release.guarantee),
            str(release.if_shuffler_colludes),
            release_facts(study.release).interval_text,
            format_number(study.plan.choice.expected_error),
        ):
            assert told in text
            assert told in printed
        for candidate in study.plan.candidates:
            assert f"{format_number(candidate.expected_error)} {study.plan.query.unit}" in text


def test_the_assessment_has_the_numbers_of_the_plan(made: Made) -> None:
    text = made.page.text
    for study in made.studies:
        plan = study.plan
        choice = study.plan.choice
        paragraphs = assessment(study.collection, study.asked)
        for paragraph in paragraphs:
            assert paragraph in text
        whole = " ".join(paragraphs)
        for told in (
            f"{plan.users:,} people",
            f"at least {plan.honest:,} of the {plan.users:,} reports",
            f"{choice.bits_per_user:,} bits",
            f"{choice.messages_per_user} messages",
            str(choice.guarantee),
            str(choice.fallback),
            f"{format_number(plan.query.diameter)} {plan.query.unit} apart",
            plan.digest[:16],
            "at most 2.719 times as likely with one as with the other, plus a probability of 1e-06",
            f"expected error is {format_number(choice.expected_error)} {plan.query.unit}",
            release_facts(study.release).interval_text,
        ):
            assert told in whole


def test_the_chapter_about_users_tells_both_releases(made: Made) -> None:
    text = made.page.text
    printed = made.printed
    study = made.months
    assert [released.plan.choice.trusted for released in study.releases] == ["nobody", "curator"]
    for released in study.releases:
        release = released.release
        assert release.raw_values_seen
        assert not release.unsafe_seeded
        for told in (
            str(release.guarantee),
            released.full_replacement,
            f"{format_number(round(study.error(released), 1))} m",
        ):
            assert told in text
    assert str(study.central.release.if_shuffler_colludes) in text
    for told in (
        str(study.local.release.guarantee),
        study.local.full_replacement,
        f"{study.visits:,} visits",
    ):
        assert told in printed
    for sentence in study.comparisons[1].sentences():
        assert sentence[1:] in text
    # both miss with probability far below 1e-6
    assert study.error(study.central) < 10.0 * study.central.plan.choice.expected_error
    assert study.error(study.central) < study.error(study.local)


def test_the_map_tells_what_it_is_off_by(made: Made) -> None:
    text = made.page.text
    printed = made.printed
    study = made.places
    assert study.vectors.plan.choice.protocol == "noisy-vectors"
    assert "one person's value moving by up to 500 m" in str(
        study.vectors.release.if_shuffler_colludes
    )  # the floor
    for released in study.releases:
        assert released.release.raw_values_seen
        assert not released.release.unsafe_seeded
        assert released.shares.min() >= 0.0
        assert released.shares.sum() == pytest.approx(1.0)
        assert released.shares.shape == study.truth.shape
        assert format_number(round(study.distance(released), 1)) in text
        assert (
            f"earth mover's distance {format_number(round(study.distance(released)))} m" in printed
        )
    for released in study.releases[:2]:
        for told in (str(released.release.guarantee), str(released.release.if_shuffler_colludes)):
            assert told in text
    # five runs: 198 to 264 m against 611 to 743 m, 0.16 to 0.21 % against 0.27 to 0.28 %
    assert study.distance(study.vectors) < study.distance(study.single[0])
    assert study.share_error(study.vectors) < study.share_error(study.single[0])


def test_maps_have_one_scale() -> None:
    shares = np.array([0.0, 1e-6, 0.01, 0.04, 0.5])
    assert shade_indices(shares, 0.04).tolist() == [
        0,
        0,
        SHADE_COUNT // 2,
        SHADE_COUNT,
        SHADE_COUNT,
    ]
    with pytest.raises(ValueError, match="above 0"):
        shade_indices(shares, 0.0)
    grid = ms.Grid(3, 2, 1.0)
    drawn = share_map("a", np.array([0.25, 0.25, 0.0, 0.0, 0.0, 0.5]), grid, 0.5)
    runs = [
        [(place["x"], place["y"]) for place in layer["data"]["values"] if place["x"] is not None]
        for layer in drawn["layer"]
        if layer["mark"]["type"] == "line"
    ]
    assert runs == [[(0, 0.5), (2, 0.5)], [(2, 1.5), (3, 1.5)]]  # neighbours of a shade are one run
    legend = json.dumps(
        maps_side_by_side(
            [("The truth", np.full(4, 0.25), [])], ms.Grid(2, 2, 500.0, "m"), 0.25, "time"
        )
    )
    assert all(
        f'"text": "{words}"' in legend for words in ("share of time", "0 %", "25 %", "200 m")
    )


def test_blocks_of_the_map_cover_the_city() -> None:
    blocks = city_blocks()
    assert (blocks.width * blocks.cell, blocks.height * blocks.cell) == (
        CITY.width * CITY.cell,
        CITY.height * CITY.cell,
    )


def test_shares_of_the_visits_are_possible(made: Made) -> None:
    for released in made.months.releases:
        assert released.shares.shape == made.months.truth.shape
        assert released.shares.min() >= 0.0
        assert released.shares.sum() == pytest.approx(1.0)


def test_what_the_users_chapter_compares(made: Made) -> None:
    """User-level privacy once, and the tree release at both rates, in both models."""
    both = merged(made.months)
    trees = [method for method in both.methods if method.hides == "earth mover"]
    assert sorted(method.model for method in trees) == ["central", "central", "local", "local"]
    assert len({(method.model, method.name) for method in both.methods}) == len(both.methods)
    for_all, nearby = made.months.comparisons
    assert for_all.rate * for_all.diameter == pytest.approx(for_all.epsilon)
    assert nearby.rate > 15.0 * for_all.rate
    assert nearby.gain("central") > for_all.gain("central")


def test_an_estimate_is_near_the_truth(made: Made) -> None:
    for study in made.studies:  # misses with probability about 1e-9
        assert study.error < 25.0 * study.plan.choice.expected_error


def test_curves_pass_through_the_plan(made: Made) -> None:
    """Charts show the numbers of the plan's candidates at its own size, to chart precision."""
    plan = made.numbers.plan
    errors = {curve.protocol: curve.errors[0] for curve in error_curves(plan, [plan.users])}
    candidates = {
        candidate.protocol: candidate
        for candidate in plan.candidates
        if candidate.shape in (None, 1, plan.honest)
    }
    for protocol, error in errors.items():
        assert error == pytest.approx(candidates[protocol].expected_error, rel=1e-3)
    ends = [frontier(plan)[index] for index in (0, -1)]
    for point, protocol in zip(ends, ("polya-shuffle", "geometric-shuffle"), strict=True):
        assert point.error == pytest.approx(candidates[protocol].expected_error, rel=1e-3)
        assert point.local_epsilon == pytest.approx(candidates[protocol].local_epsilon, rel=1e-3)


def test_consequences_are_the_exact_ones(made: Made) -> None:
    plan = made.numbers.plan
    choice = made.numbers.plan.choice
    rows = {
        (row.group, row.situation.split(":")[0].split(" (")[0]): row
        for row in consequences(ProtocolReview.of(plan, choice))
    }
    assert next(iter(rows.values())).epsilons[0] <= plan.target.epsilon * (1 + 1e-9)
    assert rows["The shuffler colludes", "with the analyst"].epsilons == (choice.local_epsilon,)
    assert isinstance(choice.mechanism, Sums)
    assert choice.rate is not None
    randomizer = choice.mechanism.randomizers[0]
    assert isinstance(randomizer, AdditiveRandomizer)
    half = AdditiveNoise(Polya(randomizer.shape * 30, choice.rate)).epsilon(plan.target.delta, 20)
    assert rows["Users drop out or collude", "50% honest"].epsilons[0] == pytest.approx(
        half, rel=1e-6
    )  # and mixing adds a little
    assert rows["Users drop out or collude", "50% honest"].epsilons[0] >= half
    assert (
        rows["Users drop out or collude", "50% honest"].epsilons[0]
        > rows["Users drop out or collude", "80% honest"].epsilons[0]
        > 1.0
    )
    twice, five = (
        rows["Someone moves farther", f"{times} times as far"].noise_alone[0] for times in (2, 5)
    )
    assert (
        1.0
        < twice
        < five
        < rows["Someone moves farther", "from one end to the other"].noise_alone[0]
    )
    assert math.isfinite(honest_sum_profile(plan, choice.mechanism, plan.honest).delta(1.0, 20.0))


def test_what_is_not_a_sum_has_no_such_charts(made: Made) -> None:
    plan = made.months.local.plan
    with pytest.raises(InputError, match="failure scenarios need the mechanism"):
        ProtocolReview.of(plan, plan.choice.model_copy(update={"mechanism": None}))
    with pytest.raises(InputError, match="sum queries only, got user-histogram"):
        error_curves(plan)
    with pytest.raises(InputError, match="places on a grid"):
        plan_grid(made.numbers.plan)


def test_a_place_on_a_map_is_told_in_metres() -> None:
    pytest.importorskip("pyproj")
    target = ms.Target(epsilon=1.0, delta=1e-6, distance=500)
    planned = ms.plan(
        ms.Centroid(ms.Places(46.50, 6.60, 46.54, 6.66)),
        target,
        40,
        encoding="modular",
        protocols=["polya-shuffle"],
    )
    release = planned.run([(46.51, 6.61)] * 40)
    facts = release_facts(release)
    assert release.plane is not None
    assert facts.value == release.plane.value
    assert facts.interval == release.plane.interval
    assert facts.error((767.5, 1111.6)) < 25.0 * planned.choice.expected_error


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
    assert all(
        np.array_equal(month, again) for month, again in zip(months, visits(50), strict=True)
    )
    assert {len(month) for month in months} > {8}
    assert all(len(city_squares().cells(month)) == len(month) for month in months)
    inside = (places[:, 1] > 0.0) & (places[:, 1] < 4000.0)
    assert np.abs(places[:, 1] - river(places[:, 0]))[inside].min() >= BANK - 1e-6


def test_the_readme_picture_is_the_one_that_would_be_drawn_now() -> None:
    assert picture() == (ROOT / "docs" / "picture.svg").read_text(encoding="utf-8")


def test_the_demo_writes_one_file(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_module, "snack_study", lambda *_: made.numbers)
    monkeypatch.setattr(demo_module, "city_study", lambda *_: (made.city, CITY.cells(homes(120))))
    monkeypatch.setattr(demo_module, "map_study", lambda *_: made.places)
    monkeypatch.setattr(demo_module, "visits_study", lambda *_: made.months)
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


def test_a_folder_that_cannot_be_made_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--output", str(tmp_path / "file")]) == 2
    assert "cannot make the folder" in capsys.readouterr().err

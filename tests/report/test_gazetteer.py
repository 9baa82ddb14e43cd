"""Maps that name their places: the data of `metricshuffle-places`, and what a map draws of it."""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.web.conftest import launched

import metricshuffle_places
from metricshuffle import Histogram, Release, Target, plan
from metricshuffle.errors import InputError, MissingExtra
from metricshuffle.report.answer_export import geojson_text
from metricshuffle.report.charts.release_maps import cells_map
from metricshuffle.report.gazetteer import MAX_TOWNS, draw_gazetteer
from metricshuffle.report.pannable_map import pannable_page
from metricshuffle.spaces import Grid, Haversine

AMSTERDAM = Grid.from_box(52.30, 4.75, 52.43, 5.02, 1.0, "km")
NETHERLANDS = Grid.from_box(50.7, 3.3, 53.6, 7.2, 10.0, "km")
FIJI = Grid.from_box(-19.0, 176.0, -16.0, 180.0, 10.0, "km")


@pytest.mark.parametrize(
    ("name", "place"),
    [("Amsterdam", (52.374, 4.89)), ("Suva", (-18.14, 178.44)), ("Quito", (-0.22, -78.51))],
)
def test_towns_are_where_they_are(name: str, place: tuple[float, float]) -> None:
    names, degrees = metricshuffle_places.load_towns()
    there = degrees[names.index(name)][::-1]
    assert float(Haversine("km").pairwise([there], [place])[0, 0]) < 5.0


def test_coasts_and_borders_pass_near_places_on_them() -> None:
    """A cape, a port, a border bridge: within the tolerance of the lines and their scale."""
    points = np.concatenate(metricshuffle_places.load_outlines())[:, ::-1]
    assert np.abs(points[:, 0]).max() <= 90.0
    assert np.abs(points[:, 1]).max() <= 180.0
    for place in ((-34.357, 18.473), (36.143, -5.353), (48.574, 7.801), (31.784, 35.544)):
        near = points[np.abs(points - place).max(axis=1) < 1.0]
        assert float(Haversine("km").pairwise(near, [place]).min()) < 5.0


def test_a_small_map_has_the_largest_towns_and_no_outlines() -> None:
    background = draw_gazetteer(AMSTERDAM)
    names = [name for name, _, _ in background.names]
    assert names[0] == "Amsterdam"
    assert {"Diemen", "Amstelveen"} & set(names)
    assert not background.lines
    east, north = next((east, north) for name, east, north in background.names)
    assert np.ravel(AMSTERDAM.degrees(np.array([(east, north)]))) == pytest.approx(
        (52.374, 4.89), abs=0.02
    )


def test_a_map_of_a_country_has_borders_and_few_names() -> None:
    background = draw_gazetteer(NETHERLANDS)
    assert len(background.names) == MAX_TOWNS
    assert {"Amsterdam", "Rotterdam"} <= {name for name, _, _ in background.names}
    assert len(background.lines) > 5
    cells = NETHERLANDS.width * NETHERLANDS.height
    shares = np.full(cells, 1.0 / cells)
    drawn = json.dumps(cells_map(NETHERLANDS, shares, None, "95 %", "share", background))
    assert metricshuffle_places.SOURCE in drawn
    assert "Rotterdam" in drawn


def test_a_map_may_end_at_the_antimeridian() -> None:
    assert "Suva" in [name for name, _, _ in draw_gazetteer(FIJI).names]


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "metricshuffle_places", None)
    with pytest.raises(MissingExtra, match="pip install metricshuffle-places"):
        draw_gazetteer(AMSTERDAM)


@pytest.fixture(scope="module")
def pannable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Path]:
    grid = Grid.from_box(52.30, 4.75, 52.43, 5.02, 4.0, "km")
    planned = plan(Histogram(grid), Target(2.0, 1e-6, 4.0), users=300)
    generator = np.random.default_rng(5)
    places = generator.uniform((52.31, 4.76), (52.42, 5.01), (300, 2))
    release = planned.run(places)
    page = tmp_path_factory.mktemp("pannable") / "map.html"
    page.write_text(pannable_page(release), encoding="utf-8")
    return release, page


def test_a_pannable_page_has_all_that_it_draws(pannable: tuple[Release, Path]) -> None:
    release, page = pannable
    text = page.read_text(encoding="utf-8")
    policy = text.partition("Content-Security-Policy")[2].partition("<title>")[0]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    data = json.loads(text.partition('id="map-data">')[2].partition("</script>")[0])
    answer = json.loads(geojson_text(release))
    assert data["answer"] == answer
    assert len(data["numbers"]) == len(answer["features"])
    assert "Amsterdam" in [name for name, _ in data["towns"]]
    for promise in (release.guarantee, release.if_shuffler_colludes):
        assert html.escape(str(promise), quote=False)[:60] in text


def test_a_name_cannot_leave_the_data(tmp_path: Path, pannable: tuple[Release, Path]) -> None:
    """A file of the user's own is drawn, and what it says stays text."""
    release, _ = pannable
    evil = "</script><script>alert(1)</script>"
    shape = {"type": "Point", "coordinates": [4.9, 52.37]}
    own = tmp_path / "own.geojson"
    own.write_text(json.dumps({"type": "Feature", "properties": {"name": evil}, "geometry": shape}))
    text = pannable_page(release, background=own)
    assert "<script>alert" not in text
    own.write_text("{}")
    with pytest.raises(InputError, match="as a background"):
        pannable_page(release, background=own)


@pytest.mark.thorough
def test_a_pannable_map_is_drawn_and_says_numbers(pannable: tuple[Release, Path]) -> None:
    _, page = pannable
    with launched() as opened:
        tab = opened.new_page(viewport={"width": 900, "height": 900})
        problems: list[str] = []
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda message: problems.append(message.text))
        tab.on("request", lambda request: problems.append(request.url))
        tab.goto(page.as_uri())
        tab.wait_for_selector("#map[data-drawn]", timeout=60_000)
        assert "Amsterdam" in tab.locator(".town").all_text_contents()
        assert tab.get_by_role("img", name="Amsterdam", exact=True).count() == 1
        # the middle of the map, wherever its frame is
        box = tab.locator("#map").bounding_box()
        tab.mouse.click(box["x"] + box["width"] / 2 + 40, box["y"] + box["height"] / 2 + 40)
        tab.wait_for_selector(".maplibregl-popup", timeout=30_000)
        assert "% interval" in tab.locator(".maplibregl-popup").inner_text()
        before = tab.locator(".maplibregl-ctrl-scale").inner_text()
        tab.locator(".maplibregl-ctrl-zoom-in").click()
        tab.wait_for_function(
            "text => document.querySelector('.maplibregl-ctrl-scale').innerText !== text",
            arg=before,
        )
        assert tab.locator("#map").get_attribute("data-error") is None
        foreign = [line for line in problems if not line.startswith(("file:", "blob:", "data:"))]
        assert not [line for line in foreign if "GPU stall" not in line and "GL Driver" not in line]

"""Maps that name their places: the data of `metricshuffle-places`, and what a map draws of it."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import metricshuffle_places
from metricshuffle.errors import MissingExtra
from metricshuffle.report.charts.release_maps import cells_map
from metricshuffle.report.gazetteer import MAX_TOWNS, draw_gazetteer
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

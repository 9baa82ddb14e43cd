"""A chart as a value: what a page draws, a notebook shows, and a file keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metricshuffle.report.charts.vega import CONFIG, VEGA_LITE, Drawing, Spec, drawing, svg
from metricshuffle.report.template_engine import EXTRA, can_draw, render_template

SCHEMA = f"https://vega.github.io/schema/vega-lite/v{VEGA_LITE.split('.')[0]}.json"
# Longer descriptions are lists for those who hear them; below a picture their first sentence is enough.
LONGEST_CAPTION = 400


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification with the words that tell what it shows to whoever cannot see it.

    `name` tells the charts of a page apart. Drawing needs the extra `report`; the specification needs nothing.
    """

    spec: Spec
    name: str
    title: str
    description: str
    narrow: Spec | None = None
    """The same for a telephone, where it is not simply the same chart with narrower panels."""

    def drawing(self) -> Drawing:
        """As a template of a page writes it."""
        return drawing(self.spec, self.name, self.title, self.description, narrow=self.narrow)

    def svg(self) -> str:
        """As a file of its own."""
        return svg(self.spec, self.name, self.title, self.description, inline=False)

    def to_dict(self) -> dict[str, Any]:
        """The whole specification, as any Vega-Lite renderer takes it."""
        return {"$schema": SCHEMA, "description": self.description, "config": CONFIG, **self.spec}

    def _repr_html_(self) -> str | None:
        """With its title and words, in the colours of the notebook; nothing where it cannot be drawn: then the line below says why."""
        caption = self.description if len(self.description) <= LONGEST_CAPTION else f"{self.description.partition('. ')[0]}."
        return render_template("notebook/chart.html.jinja", drawing=self.drawing(), caption=caption) if can_draw() else None

    def __repr__(self) -> str:
        missing = "" if can_draw() else f"; to draw it: pip install 'metricshuffle[{EXTRA}]'"
        return f"Chart({self.title!r}{missing})"

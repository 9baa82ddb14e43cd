"""The `Chart` object: a chart that pages embed, notebooks display and files store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metricshuffle.errors import require
from metricshuffle.report.charts.vega import CONFIG, VEGA_LITE, Drawing, Spec, drawing, svg
from metricshuffle.report.template_engine import EXTRA, can_draw, render_template

SCHEMA = f"https://vega.github.io/schema/vega-lite/v{VEGA_LITE.split('.')[0]}.json"
# Longer descriptions are lists for screen readers; as a caption their first sentence is enough.
LONGEST_CAPTION = 400
PNG_SCALE = 2.0  # sharp on screens of twice the usual resolution, and in print


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification with a description for people who cannot see it.

    `name` identifies a chart on its page. Drawing needs the extra `report`; the specification needs
    nothing.
    """

    spec: Spec
    name: str
    title: str
    description: str
    narrow: Spec | None = None
    """Version for phones, if narrower panels are not enough."""

    def drawing(self) -> Drawing:
        """Draw it for a page template."""
        return drawing(self.spec, self.name, self.title, self.description, narrow=self.narrow)

    def svg(self) -> str:
        """Draw it as a standalone SVG file."""
        return svg(self.spec, self.name, self.title, self.description, inline=False)

    def png(self, scale: float = PNG_SCALE) -> bytes:
        """Draw it as a PNG file with `scale` pixels for each pixel of the chart."""
        converter = require("vl_convert", EXTRA)
        image: bytes = converter.svg_to_png(self.svg(), scale=scale)
        return image

    def to_dict(self) -> dict[str, Any]:
        """Return the complete specification for any Vega-Lite renderer."""
        return {"$schema": SCHEMA, "description": self.description, "config": CONFIG, **self.spec}

    def _repr_html_(self) -> str | None:
        """The chart with its title and caption, in the colours of the notebook.

        None if it cannot be drawn; then `__repr__` says why.
        """
        caption = (
            self.description
            if len(self.description) <= LONGEST_CAPTION
            else f"{self.description.partition('. ')[0]}."
        )
        return (
            render_template("notebook/chart.html.jinja", drawing=self.drawing(), caption=caption)
            if can_draw()
            else None
        )

    def __repr__(self) -> str:
        missing = "" if can_draw() else f"; to draw it: pip install 'metricshuffle[{EXTRA}]'"
        return f"Chart({self.title!r}{missing})"

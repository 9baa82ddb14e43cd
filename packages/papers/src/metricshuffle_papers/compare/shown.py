"""Comparisons show themselves as cards in notebooks, like every result."""

from __future__ import annotations

from metricshuffle.display import HtmlRepr


class ShownComparison(HtmlRepr):
    """A comparison that notebooks show as a card. It has no fields."""

    def _repr_html_(self) -> str:
        from metricshuffle_papers.pages import cards  # noqa: F401 - it registers the cards

        return super()._repr_html_()

"""Notebook display of comparisons as cards."""

from __future__ import annotations

from metricshuffle.display import HtmlRepr


class ShownComparison(HtmlRepr):
    """Base of comparisons that notebooks show as a card. It has no fields."""

    def _repr_html_(self) -> str:
        from metricshuffle_papers.pages import cards  # noqa: F401 - it registers the cards

        return super()._repr_html_()

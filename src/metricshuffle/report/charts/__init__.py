"""Vega-Lite charts, rendered as SVG when a page is built."""

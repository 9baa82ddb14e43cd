"""Vega-Lite charts, drawn as SVG when a page is built."""

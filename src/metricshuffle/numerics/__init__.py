"""Numerical foundations: array types, directed rounding, certified searches and threads."""

"""Imola24: "Metric Differential Privacy at the User-Level via the Earth Mover's Distance"."""

"""Simulated populations, and fast draws of what a protocol would release."""

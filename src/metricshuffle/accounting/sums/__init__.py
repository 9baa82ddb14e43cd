"""Sums with noise: exact profiles, padding, two axes, randomized response, shares."""

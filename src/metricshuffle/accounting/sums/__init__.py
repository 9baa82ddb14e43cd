"""Profiles of noisy sums: additive noise, clamping, two axes, randomized response, shares."""

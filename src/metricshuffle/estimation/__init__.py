"""Estimation of shares from counts and sums: inversion, likelihood, projections."""

"""From counts and sums to shares: inversion, likelihood, projections."""

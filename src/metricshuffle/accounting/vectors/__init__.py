"""Privacy of noisy sums of integer features: ideal, shared, large moves, colluding shuffler."""

"""What noisy sums of whole-number features hide: ideal, mixed in shares, far away, and if the shuffler colludes."""

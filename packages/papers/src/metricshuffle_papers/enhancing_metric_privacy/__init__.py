"""The paper "Enhancing Metric Privacy With a Shuffler" (Athanasiou25): shuffled sums."""

"""Shuffled reports of a randomizer with two possible reports: the exact answer."""

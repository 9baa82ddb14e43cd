"""Shuffled reports of one randomizer, from the whole law of every other report instead of the part that all have in common."""

"""Shuffled reports of one randomizer, from its own laws."""

"""Amplification by shuffling reports of one randomizer, from the laws of its reports."""

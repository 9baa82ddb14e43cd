"""Shuffled reports of any randomizer, from local epsilons alone."""

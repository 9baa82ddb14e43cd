"""Upper and lower bounds on the privacy of the shuffled reports of a randomizer."""

"""What the shuffled reports of a randomizer hide, from both sides."""

"""Pages of the papers' commands, and the cards of comparisons."""

"""Local metrics and randomizers for a privacy target after shuffling."""

"""What all numbers here rest on: names for arrays, directed rounding, searches that return only what was certified, and processors."""

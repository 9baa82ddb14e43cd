"""What all numbers here rest on: names for arrays, directed rounding, and searches that return only what was certified."""

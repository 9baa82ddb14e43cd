"""Published formulas as published, wrong ones included; none of them can become a guarantee."""

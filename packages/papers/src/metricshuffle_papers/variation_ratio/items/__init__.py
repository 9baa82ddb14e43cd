"""What `reproduce` shows of the variation-ratio paper: each module has its ITEMS, and no numerics of its own."""

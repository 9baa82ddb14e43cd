"""What `reproduce` shows of the supplement: each module has its ITEMS, and no numerics of its own."""

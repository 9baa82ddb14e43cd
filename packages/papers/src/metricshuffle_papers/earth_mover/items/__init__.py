"""What `reproduce` shows of the earth mover's paper: each module has its ITEMS, and no numerics of its own."""

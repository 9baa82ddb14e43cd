"""Items of `reproduce` for the earth mover's paper; modules define ITEMS and no numerics."""

"""Items of `reproduce` for the supplement; modules define ITEMS and no numerics."""

"""Items of `reproduce` for the variation-ratio paper; modules define ITEMS and no numerics."""

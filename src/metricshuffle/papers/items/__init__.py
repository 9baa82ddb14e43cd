"""What the four papers show, one module an item: each has an `ITEM` and no numerics of its own."""

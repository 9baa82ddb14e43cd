"""Testing a shuffler from outside: what its batches certainly give away."""

"""Sum by several servers: each adder adds up one share of every report."""

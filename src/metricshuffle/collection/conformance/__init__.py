"""Checks that vectors, servers and clients follow the specification in docs/spec."""

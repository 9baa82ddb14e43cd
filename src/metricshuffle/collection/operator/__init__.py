"""Operator's interface to a running shuffler."""

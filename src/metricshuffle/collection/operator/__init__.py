"""The operator's interface of a running shuffler."""

"""Mixers: processes that mix the messages of a large collection over an object store."""

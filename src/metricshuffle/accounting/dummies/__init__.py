"""Accounts of noise that a shuffler adds as dummy messages."""

"""Analyst's side of a collection: download, decrypt, estimate."""

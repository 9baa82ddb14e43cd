"""Comparison of methods that release users' items."""

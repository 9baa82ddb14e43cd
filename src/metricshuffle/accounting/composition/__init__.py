"""Composition of several rounds, or of several reports of one person."""

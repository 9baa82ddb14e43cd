"""Participant's side of a collection: build a report, seal it, send it."""

"""Generators of documents and tools for the source tree; not part of the package."""

"""Shuffler: admission, storage, mixing and release of sealed reports."""

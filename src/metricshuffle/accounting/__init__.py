"""Theorems: numbers in, certified numbers out. Profiles here are upper bounds."""

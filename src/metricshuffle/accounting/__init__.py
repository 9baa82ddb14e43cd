"""Accounting theorems, which return certified numbers. Profiles here are upper bounds."""

"""Items of `reproduce` for Athanasiou25; each module defines ITEMS.

Figures that differ in parameters only are rows of a table.
"""

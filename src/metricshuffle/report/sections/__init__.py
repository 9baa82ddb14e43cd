"""Data and charts of report chapters; their texts have the same names in templates/report."""

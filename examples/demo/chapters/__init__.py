"""The chapters of the report that only the demo has."""

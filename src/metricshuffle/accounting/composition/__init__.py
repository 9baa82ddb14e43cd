"""Several rounds, or several reports of one person."""

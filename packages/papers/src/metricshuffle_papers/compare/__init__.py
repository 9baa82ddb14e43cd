"""Ways to release users' items side by side."""

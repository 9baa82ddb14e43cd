"""Pages of the papers' commands, and notebook cards of comparisons."""

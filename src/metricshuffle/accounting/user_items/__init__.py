"""Users who hold many items: the earth mover's distance."""

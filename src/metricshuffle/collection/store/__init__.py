"""Storage of sealed reports of a shuffler: SQLite or PostgreSQL."""

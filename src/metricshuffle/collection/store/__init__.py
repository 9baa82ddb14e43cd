"""Where a shuffler keeps sealed reports: SQLite or PostgreSQL."""

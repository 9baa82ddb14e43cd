"""Renames modules and identifiers from one map, `renames.toml`, and proves by syntax trees that nothing else changed."""

"""What writes the generated documents; not part of the package."""

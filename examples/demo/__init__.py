"""The demo: four collections on invented people, all roles played, and a report about them. `python -m examples.demo` runs it."""

"""The demo: four collections of simulated people, with all roles, and a report about them. `python
-m examples.demo` runs it.
"""

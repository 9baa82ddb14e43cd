"""The issuer: a demonstration of the party that gives each person one token."""

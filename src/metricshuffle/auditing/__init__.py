"""Audits of a shuffler from outside: lower confidence bounds on its epsilon."""

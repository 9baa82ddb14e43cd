"""Privacy cost of releases: the ledger, one task, several tasks together."""

"""What releases cost: the ledger, one task, several tasks together."""

"""Edge of a shuffler on several hosts: takes reports with keys that the hub leases to it."""

"""Hub of a shuffler on several hosts: key files, leases of keys to edges, and the driver."""

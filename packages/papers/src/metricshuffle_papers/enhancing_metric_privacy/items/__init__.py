"""What `reproduce` shows of Athanasiou25: each module has its ITEMS; figures that differ in parameters only are rows of a table."""

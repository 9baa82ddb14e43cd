"""The same plans where data lives on a cluster: `metricshuffle.spark.roles`."""

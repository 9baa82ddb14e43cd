"""Plans on Spark clusters: `metricshuffle.spark.roles`."""

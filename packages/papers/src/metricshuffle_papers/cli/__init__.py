"""The commands that this distribution adds to `metricshuffle`: one file a command."""

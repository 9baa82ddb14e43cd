"""Commands that this distribution adds to `metricshuffle`, one file each."""

"""From the privacy wanted after shuffling to a local metric."""

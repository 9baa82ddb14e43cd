"""The collection service: sealed reports from many people, a shuffler that cannot read them, an analyst who cannot link them."""

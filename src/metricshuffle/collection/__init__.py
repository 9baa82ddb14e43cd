"""Collection service: sealed reports, a shuffler that cannot read them, an analyst."""

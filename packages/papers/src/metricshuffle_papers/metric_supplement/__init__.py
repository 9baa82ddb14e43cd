"""WitchHat: the supplement of a paper on metric differential privacy in the shuffle model."""

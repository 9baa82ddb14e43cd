"""Wang24: "Privacy Amplification via Shuffling: Unified, Simplified, and Tightened"."""

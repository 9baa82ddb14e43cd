"""The paper "Privacy Amplification via Shuffling: Unified, Simplified, and Tightened" (Wang24): the variation ratio."""

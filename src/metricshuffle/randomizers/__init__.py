"""The law of one report: how it is drawn, what it hides alone, what a sum of many hides."""

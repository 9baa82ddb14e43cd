"""The page of `metricshuffle web`: a planner in a browser, and a console for collections. No number is computed here."""

"""Page of `metricshuffle web`: a planner and a console for collections. It computes no numbers."""

"""The paper "Metric Differential Privacy at the User-Level via the Earth Mover's Distance" (Imola24): users with many items."""

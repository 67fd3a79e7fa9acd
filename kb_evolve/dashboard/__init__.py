"""`kb-evolve serve`: what a database holds, live, in a browser; it only reads."""

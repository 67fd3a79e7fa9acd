"""Using kb_evolve: configurations, benchmarks, recorded results."""

"""The commands of `kb-evolve`, one module for each or for a few that share their data."""

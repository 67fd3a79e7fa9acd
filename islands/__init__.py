"""Remembering and selecting: the population database."""

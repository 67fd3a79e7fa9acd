"""How each kernel language is checked and built."""

TRITONS = ("3.6", "3.7", "3.8", "3.9")
"""Versions of Triton that are known to work: fitness/backends/triton.py replaces inner parts of it, which were read and
tried in 3.6.0, 3.7.1, 3.8.0 and 3.9.0."""

"""Measuring one program: build, verify, time. Needs torch and the standard library only."""

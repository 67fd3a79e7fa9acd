"""Turning a ticket into a proposal."""

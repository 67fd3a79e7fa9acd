"""A small language model on this machine: kb_evolve's whole loop without a key and without a network."""

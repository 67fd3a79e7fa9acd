"""Kernels that try to deceive the judge, each with its honest twin; docs/adversarial.md lists them."""

"""The host suite: candidates that attack the machine they are judged on (run by experiments/host.py)."""

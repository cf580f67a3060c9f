"""Two runs of the same cases: paired differences and their intervals. Start with `paired.py`."""

"""The `beam` strategy: beam search under a constraint, scored as transformers does. Start with `strategy.py`."""

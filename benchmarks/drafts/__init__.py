"""Drafts beside `mask` and beside no constraint: `python -m benchmarks drafts`. Start with `speed.py`."""

"""Sampling presets: the values, the built-in ones, and the user's own files. Start with `spec.py`."""

"""Sampling presets: the values, those that come with Espalier, and the user's own files. Start with `spec.py`."""

"""Schemas from Python classes, types and functions, and instances back from JSON. Start with `schemas.py`."""

"""Recorders: they receive a run's steps while it happens, and keep them in memory, as JSON lines, or as a rejection
log. Start with `protocol.py`."""

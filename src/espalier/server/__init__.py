"""The HTTP edge: bodies to requests, events to replies and streams, keys, limits, metrics and logs. It knows no
engine's insides. Start with `apps.py`; docs/structures.md walks one request through.
"""

"""The HTTP server: request bodies to engine requests, events to replies and streams, keys, limits, metrics and logs.

It does not know how an engine works inside. Start with `apps.py`; docs/structures.md walks one request through.
"""

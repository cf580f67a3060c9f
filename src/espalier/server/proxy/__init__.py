"""The proxy in front of a llama-server: passes everything on, and traces what constraints did to each generation.

It runs no model. Start with `app.py`; `forward.py` passes bytes on, and the other modules know what to trace.
"""

"""Schemas from Python classes, types and functions, and instances back from JSON. It does not know other schemas. Start
with `schemas.py`.
"""

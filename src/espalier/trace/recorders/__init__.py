"""Recorders that are told of a run while it happens: in memory, as JSON lines, as a rejection log. `protocol.py`
says what they are told.
"""

"""Traces, figures of generations and counters in SQLite or PostgreSQL. All SQL is here. Start with `open.py`."""

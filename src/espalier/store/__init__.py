"""Stores traces, generation logs and counters of limits in SQLite or PostgreSQL. All SQL is here.

It knows neither HTTP nor engines. Start with `open.py`.
"""

"""Rebuilds an inference file from questions and a store of logged requests, in constant memory.

Start reading with `run.py`. It knows no layout of a store (`foreign/` does) and no model.
"""

"""Batch jobs in a server's process: an executor over the generating routes, and the worker that the server has inside.

Start with `executor.py`.
"""

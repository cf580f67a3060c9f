"""Runs functions in worker processes that can be ended: each call has a limit of CPU time and memory, held by the
kernel, and a caller who leaves ends it.

It knows no function: what is called is named, and what goes in and comes out is JSON. Start with `pool.py`.
"""

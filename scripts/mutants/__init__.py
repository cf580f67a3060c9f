"""Mutation testing: one small change of the code at a time, and whether a test notices it. `__main__.py` has the
command, `mutations.py` the changes, `running.py` runs tests against them, `parts.toml` has the table of parts.
"""

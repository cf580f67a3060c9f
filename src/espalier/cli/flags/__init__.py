"""Flags that several commands share, one module for each group: constraints, models, sampling, decoding, tools.

A flag is one field of a group's dataclass. `groups.py` builds the commands from them; start there.
"""

"""`espalier batch ...`: run a batch without a server, work on those of the store, look at them.

Start with `commands.py`; `run.py` is `espalier batch run`, `store.py` what they share.
"""

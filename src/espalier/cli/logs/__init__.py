"""`espalier logs ...`: list, show, search and prune the log of generations. Start with `commands.py`; `page.py` writes
one row for people.
"""

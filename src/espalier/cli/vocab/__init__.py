"""`espalier vocab`: show what is in a vocabulary, and keep it for machines without its model.

Start with `command.py`; `reading.py` finds vocabularies for other commands too.
"""

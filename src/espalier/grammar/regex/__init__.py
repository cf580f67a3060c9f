"""Regular expressions as grammar trees: Python's `re` syntax as far as it is regular. Start with `parse.py`."""

"""Regular expressions of Python's `re` as grammar expressions, where they are regular. It does not know automata. Start
with `parse.py`.
"""

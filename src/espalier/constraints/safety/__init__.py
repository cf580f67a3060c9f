"""The `safety` constraint: categories and patterns as data, one automaton over all of them, its matcher, and the
search that judges a finished text. Start with `spec.py` and `catalogue.py`; `judge.py` shares no code path with the
automaton.
"""

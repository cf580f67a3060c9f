"""What matchers of several kinds are made of: base classes, the matcher over an automaton, members in parallel,
tokens that may be undone, and the optional questions about a near end (`closing.py`) and about rewinding
(`rewinding.py`). It knows no kind of constraint. Start with `base.py` and `automaton.py`.
"""

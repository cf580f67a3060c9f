"""A schema's normal form as rules that are explored on demand, for the matcher: `rules.py` finds the rules and what
each costs at least; strings and numbers are shared by all schemas of the process (`leaves.py`). It shares the automata
of objects and arrays with the GBNF export (`schema/lowering/`). It knows no vocabulary.
"""

"""Rules by JSON type: what each operation states on a branch when it holds, and the ways in which it can fail. They
build no nodes. Start with `table.py`; `rules.py` describes the two functions of a rule.
"""

"""Enforces `uniqueItems` for items of every kind on top of an automaton that does not: `matcher.py` filters masks.

`arrays.py` finds the arrays in a schema's normal form (`spots.py`), and `tracker.py` follows them in a text, with items
as keys (`values.py`). What the tokens of a state may do to the open items is worked out once (`groups.py`, from
`structure.py` and `endings.py`): for a text it is asked whether what they end is there already. `room.py` and
`earlier.py` say where an item can surely still differ, and `search.py` looks for completions that repeat nothing
elsewhere. `string_matcher.py` and `string_tracker.py` are for arrays of unbounded strings alone, whose masks need no
search. `places.py` is for texts that hold several documents. Start with `matcher.py`.
"""

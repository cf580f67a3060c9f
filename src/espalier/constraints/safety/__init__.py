"""The `safety` constraint: forbids texts that match patterns of given categories. Patterns are data (`catalogue.py`),
compiled to one DFA for all of them; a separate regex search (`judge.py`) judges finished texts and shares no code with
the DFA.

Start with `spec.py` and `catalogue.py`. The compilation goes from patterns over classes of characters (`alphabet.py`,
`expressions.py`, `phrases.py`, `cards.py`) to a DFA over bytes (`automaton.py`). What the filter does not stop is in
docs/safety.md.
"""

"""The `safety` constraint: forbids texts that match patterns of given categories. Patterns are data (`catalogue.py`),
compiled to a few DFAs that read the text side by side (`parts.py`); a separate regex search (`judge.py`) judges
finished texts and shares no code with the DFAs.

Start with `spec.py` and `catalogue.py`. The compilation goes from patterns over classes of characters (`alphabet.py`,
`expressions.py`, `phrases.py`, `cards.py`) to DFAs over these classes (`automaton.py`), which `machine.py` runs over a
vocabulary, with masks from `alone/`. What the filter does not stop is in docs/safety.md.
"""

"""Automata that are explored on demand: expressions and `Linear` automata become positions when a walk first meets
them. Nothing is built that no text reaches. It knows no vocabulary and no schema.

Start with `linear.py` (what is explored), then `items.py` (what is left to be read), `explored.py` (deterministic
positions) and `network.py` (the same interface as `languages/network.py`).
"""

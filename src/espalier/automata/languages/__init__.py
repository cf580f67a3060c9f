"""Builds automata over bytes: expressions to NFAs, rules to fragments, grammars to networks (pushdown automata), word
lists and regular grammars to DFAs; intersections and set operations. It knows no vocabulary.

Start with `nfa.py`, then `fragment.py`, `network.py` and `dfa.py`.
"""

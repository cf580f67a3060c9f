"""Build automata: expressions to NFA fragments, fragments to networks of rules, finite languages and regular ones to
DFAs, and their products and set operations. It knows no vocabulary. Start with `nfa.py`, then `network.py` and
`dfa.py`.
"""

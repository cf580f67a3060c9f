"""Token masks: walks an automaton against the token trie of one vocabulary, and caches the packed masks.

`machine.py` is the protocol that matchers use; `regular.py` (DFA) and `pushdown.py` (pushdown automaton) implement it.
It knows no EOS and no spec.
"""

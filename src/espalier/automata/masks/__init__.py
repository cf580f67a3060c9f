"""Automata over one vocabulary: the walk against the token trie, packed token masks, and their caches. `machine.py`
is the protocol that matchers use; `regular.py` (DFA) and `pushdown.py` (networks) implement it. It knows no EOS and
no spec.
"""

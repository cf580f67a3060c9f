"""Exact automata over bytes: compiling a grammar to a DFA or a pushdown automaton, walking it against the token trie to
get packed token masks, completions, and explanations of refused tokens. It knows no spec, no schema and no sampling.

Start with `languages/` (grammar to NFA to DFA), then `masks/` (token masks), `ends/` (completions), `reasons/`
(explanations) and `phrases/` (searching running text).
"""

"""Exact automata over bytes: compiles a grammar to a DFA or a pushdown automaton, walks it against the token trie for
packed token masks, finds completions, and explains refused tokens. It knows no spec, no schema and no sampling.

Start with `languages/` (grammar to NFA to DFA or network), then `masks/` (token masks), `ends/` (completions),
`reasons/` (explanations) and `phrases/` (searching running text). Terms:

- NFA, DFA: nondeterministic and deterministic finite automaton; here over bytes, so text is UTF-8.
- fragment: the automaton of one rule. network: the fragments of a grammar's rules, with edges that call other rules,
  which makes it a pushdown automaton. position: a state of a network. stack: the positions that open calls return to.
- byte class: bytes that no state tells apart; tables have one column for each class.
- accept state: a state in which the text may end. co-reachable: an accept state can be reached from here. A dead end is
  a state that is not co-reachable; no mask ever leads into one.
- token trie: the bytes of all tokens as a trie, so that tokens with a common prefix are walked once.
- packed token mask: `(W,) int32`, one bit for each token id.
- machine: a DFA or network for one vocabulary, as matchers use it (`masks/machine.py`).
- completion: tokens that lead from a state to an accept state. EOS is added by the matcher; no automaton knows it.
"""

"""Context-free grammars as GBNF: parsed, checked, rewritten, printed and sampled, and regular expressions as grammars.

It does not know bytes, automata, vocabularies or JSON Schema. Start with `ast.py`, then `parser.py`.
"""

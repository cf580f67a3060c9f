"""Lowers the normal form: each node to an expression or an automaton over its parts, written out as one grammar for
compositions and as GBNF (`convert.py`), or explored on demand for the matcher (`schema/lazy/`). It does not know
keywords of JSON Schema. Start with `convert.py`, then `node_rules.py`.
"""

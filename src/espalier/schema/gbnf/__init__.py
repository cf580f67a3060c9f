"""Converts the normal form to a GBNF grammar whose texts are the documents of the schema. It does not know keywords of
JSON Schema. Start with `convert.py`, then `node_rules.py`.
"""

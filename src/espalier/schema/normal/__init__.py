"""Expands a schema document to the normal form of `form.py`, with a contract on its keywords. It does not know texts or
tokens. Start with `expand.py`.
"""

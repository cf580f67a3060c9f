"""Lark grammars, translated exactly to the syntax tree of this package, or refused. Start with `read.py`."""

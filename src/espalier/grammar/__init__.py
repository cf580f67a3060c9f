"""Grammars in llama.cpp's GBNF: syntax tree, parser, printer, checks, rewrites, random sentences; and regular
expressions as the same tree. It knows no bytes and no vocabulary. Start with `ast.py` and `parser.py`.
"""

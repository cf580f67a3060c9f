"""Grammars in llama.cpp's GBNF: syntax tree, parser, printer, checks, rewrites, random sentences; and regular
expressions as the same tree. It knows no vocabulary, and bytes only in `json_position.py`. Start with `ast.py` and
`parser.py`.
"""

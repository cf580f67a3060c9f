"""Grammars in llama.cpp's GBNF: tree, parser, printer, checks, rewrites, random sentences."""

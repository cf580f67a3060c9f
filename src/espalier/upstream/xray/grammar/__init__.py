"""A grammar as llama.cpp matches it (src/llama-grammar.cpp): lenient about UTF-8, which automata of ours are not.

Start with `matcher.py`; `program.py` makes the rules, `pieces.py` decodes the tokens.
"""

"""Explains why an automaton refuses a token: how many of its bytes fit, what was expected instead, in which rule.

`blame.py` holds the value that traces show; `explain.py` computes it. It knows no trace.
"""

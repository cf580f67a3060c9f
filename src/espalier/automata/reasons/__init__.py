"""Why an automaton refuses a token: how many bytes it takes, what could have come instead, in which rule. `blame.py`
holds the value that traces show. It knows no trace.
"""

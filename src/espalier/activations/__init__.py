"""Hidden states and what is known of the requests they come from.

`foreign/` reads the stores of the HalluLens project; `reconstruct/` rebuilds inference files from them. It knows no
engine and no server. Start reading with `foreign/entry.py`, the value that every store gives.
"""

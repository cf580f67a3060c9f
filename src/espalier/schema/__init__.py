"""JSON Schema in every draft: read, normalised, turned into grammars, made from Python types, linted. It knows no
vocabulary and no matcher. `form.py` is the normal form that everything else speaks of.
"""

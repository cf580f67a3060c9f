"""JSON Schema in every draft: read, normalised, turned into GBNF grammars, made from Python types, linted.

It does not know vocabularies, masks or matchers. Start with `form.py`, the normal form that everything else uses; then
`normal/expand.py`, which makes it, and `lowering/convert.py`, which turns it into a grammar.
"""

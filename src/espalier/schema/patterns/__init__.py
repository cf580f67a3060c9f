"""The keywords `pattern` and `format`: ECMA-262 patterns as regular languages, formats, and bounds on backtracking in
`re`. It does not know schemas. Start with `languages.py`.
"""

"""The `pattern` and `format` keywords: ECMA-262 patterns as regular languages, formats, and how costly a pattern is
to judge with `re`.
"""

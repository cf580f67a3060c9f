"""What a request asks for beside its constraint, joined into one constraint: bad words, safety filters, and presets
with both. It adds; it never replaces. Start with `safety.py`.
"""

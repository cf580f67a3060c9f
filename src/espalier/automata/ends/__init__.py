"""Completions: shortest ones in tokens, completions within a token limit, the token mask that keeps one within reach,
and forced tokens. Start with `closing.py`.
"""

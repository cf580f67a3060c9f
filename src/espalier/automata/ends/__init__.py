"""The way to the end of a text: a shortest completion in tokens, the bytes and tokens that every completion starts
with, and the tokens that keep an end within a token limit. Start with `complete.py`.
"""

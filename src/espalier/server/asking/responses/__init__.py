"""Reads bodies of `/v1/responses` as requests of the chat route: items as messages, tools, formats, reasoning.

It runs nothing and writes no reply. Start with `ask.py`.
"""

"""Reads bodies of `/v1/messages` as requests of the chat route: blocks as messages, tools, thinking, formats.

It runs nothing and writes no reply. Start with `ask.py`.
"""

"""Reads request bodies into engine requests: constraint, sampling, decoding, prompts.

It runs nothing and writes no reply. Start with `openai.py` (body to draft), then `assemble.py` (draft to requests).
"""

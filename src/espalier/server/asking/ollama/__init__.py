"""Reads bodies of Ollama's `/api/chat` and `/api/generate` as requests of OpenAI's routes: messages, options, formats,
templates.

It runs nothing and writes no reply. Start with `ask.py`.
"""

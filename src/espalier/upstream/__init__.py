"""Servers and programs of others as engines: llama-server, any OpenAI-compatible server, llama-completion. What they
cannot be asked for is refused, and what they return is judged here. Start with `link.py` (HTTP) and `runs.py` (one
answer, made into events and a Result); each engine is a folder."""

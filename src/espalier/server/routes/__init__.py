"""The routes, one module per group.

A generating route names its body, its reader and its reply; `answering/` does the rest. Start with `chat.py`.
"""

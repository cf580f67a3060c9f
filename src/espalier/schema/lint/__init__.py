"""Warnings about valid schemas: what other engines drop or refuse, and what runs away. It changes no schema. Start with
`hazards.py`.
"""

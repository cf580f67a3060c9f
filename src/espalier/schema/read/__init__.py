"""Reads schema documents: drafts, an index of subschemas, references, and JSON values as JSON Schema compares them. It
expands nothing. Start with `documents.py`.
"""

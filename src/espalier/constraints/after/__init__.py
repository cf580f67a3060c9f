"""Constraints that begin later: `After` (any text up to a marker, then a constraint) and `Thinking` (optional reasoning
first). They know no inner constraint's workings. Start with `spec.py` and `matcher.py`.
"""

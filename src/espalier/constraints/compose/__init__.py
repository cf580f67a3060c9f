"""Constraints made of others: `AllOf` (every member holds) and `AnyOf` (one is enough). They know no kind of member.
Start with `all_of.py`.
"""

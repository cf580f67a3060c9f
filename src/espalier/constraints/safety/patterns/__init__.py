"""The built-in patterns of the safety filter, as data: one module for each category. Start with `pattern.py`;
`catalogue.py` puts them together.
"""

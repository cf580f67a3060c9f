"""What each operation does to a branch when it holds, and the ways in which it can fail, by JSON type. Start with
`table.py`; `rules.py` has the two function types. These modules build no nodes.
"""

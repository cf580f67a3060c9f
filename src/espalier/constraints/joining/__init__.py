"""What is named at once, joined into one constraint: a request's own, its filters and bad words, its preset. Start with
`rule.py`, which states the rule.
"""

"""The `draft` strategy: several proposed tokens go through one forward pass, and each is taken only if `mask` would
have drawn it. It does not know how a constraint works, nor what a model is. Start with `strategy.py`.
"""

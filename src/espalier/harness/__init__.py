"""Proof before deployment: what a model or a configuration is worth, measured.

`qa/` judges answers to questions. It knows no model and no edge: a judge is a function that it is given. Start reading
with `qa/evaluate.py`.
"""

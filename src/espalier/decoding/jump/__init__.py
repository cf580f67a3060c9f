"""The `jump` strategy: text that the constraint forces is appended without drawing it, split as the tokenizer would.
Start with `strategy.py`.
"""

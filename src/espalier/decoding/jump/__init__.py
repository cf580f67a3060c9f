"""The `jump` strategy: appends text that the constraint forces without drawing it, tokenized as the tokenizer would.
It does not know how a constraint or a tokenizer works. Start with `strategy.py`.
"""

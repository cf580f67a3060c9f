"""Adapters for other libraries: `transformers.py` for plain `model.generate`, `vllm/` and `sglang/` for those engines.

`joined.py` and `asked.py` say what a user can name, `rows/` follows the rows of a batch that another engine schedules.
Adapters know nothing of our engines, nor of one another.
"""

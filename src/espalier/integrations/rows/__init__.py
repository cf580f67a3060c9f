"""Rows of a batch that another engine schedules: `row.py` follows the tokens of one request, `device.py` applies packed
masks to logits where they are. It knows no engine. Start with `row.py`.
"""

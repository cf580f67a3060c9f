"""The `mask` strategy for constraints that may find out later that a text cannot stand: tokens are taken back and
not tried again. Start with `strategy.py`.
"""

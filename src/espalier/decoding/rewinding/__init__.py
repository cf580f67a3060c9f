"""The `mask` strategy with rewinds, for constraints that refuse a text only later: tokens are taken back and not taken
again. It does not know what a constraint looks for. Start with `strategy.py`.
"""

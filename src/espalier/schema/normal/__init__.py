"""From a schema document to the normal form of `form.py`, node by node when first asked for, and the contract on its
keywords. Start with `expand.py`.
"""

"""The samplers themselves, pure functions of logits: temperature, truncations, penalties, DRY, mirostat;
`registry.py` lists them by name. They do not know their order.
"""

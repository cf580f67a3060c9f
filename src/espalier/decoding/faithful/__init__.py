"""The strategies `best_of`, `smc` and `awrs`: sample from the model's distribution given the constraint, by particles
with importance weights. They know no model. Start with `strategy.py` and `target.py`.
"""

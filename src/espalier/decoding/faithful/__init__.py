"""The strategies `best_of`, `smc` and `awrs`: samples from the model's own distribution given the constraint, by
particles with importance weights. Start with `strategy.py` and `target.py`.
"""

"""Turns one row of logits into one token: config, filters, sampler chain, draw. It knows no model and no constraint.
Start with `config.py` and `chain.py`."""

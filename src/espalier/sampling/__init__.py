"""From one row of logits to one token: configuration, filters, the sampler chain, the draw. It knows no model and no
constraint. Start with `config.py` and `chain.py`.
"""

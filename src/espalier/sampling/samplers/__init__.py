"""The samplers as pure functions of logits: temperature, truncations, penalties, DRY, mirostat. Each module also
declares its `Sampler` values, and `registry.py` puts them in the default order."""

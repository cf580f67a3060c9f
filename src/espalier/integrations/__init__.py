"""Thin adapters for other libraries: a `LogitsProcessor` for plain `model.generate`."""

"""Adapters for other libraries: a `LogitsProcessor` for plain `model.generate` of transformers."""

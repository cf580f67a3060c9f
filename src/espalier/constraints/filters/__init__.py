"""Constraints as LogitFilters, for a user's own sampling loop: masks, safety, JSON mode. They know no model and no
sampler; in a request to an engine, pass the Spec itself. Start with `matcher.py`.
"""

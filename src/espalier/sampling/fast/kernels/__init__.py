"""Numba kernels: passes over one row of logits. Imported when the first token is drawn, by `candidates.kernels`."""

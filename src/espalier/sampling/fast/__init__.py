"""The fast way from logits to a token: numba kernels over one row, equal to the plain functions of `samplers/` by
test. Start with `program.py`.
"""

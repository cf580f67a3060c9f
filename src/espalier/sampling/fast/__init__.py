"""The fast path from logits to a token: numba kernels over one row, equal to the plain chain by test. Start with
`draw_fast.py`.
"""

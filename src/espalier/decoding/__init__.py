"""Strategies that choose tokens, as generators without I/O, and the driver that runs them on a model. It knows no
vocabulary files, no templates and no server. Start with `plan.py` and `ports.py`, then `walk.py` and `masking.py`.
"""

"""Models behind one protocol: a `Request` in, events out. Engines do not know one another; edges open them by name.
Start with `protocols.py` and `base.py`."""

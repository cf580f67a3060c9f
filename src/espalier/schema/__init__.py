"""JSON Schema, read and put into a normal form. See `shape.py` for the form, `expand.py` for how it is reached."""

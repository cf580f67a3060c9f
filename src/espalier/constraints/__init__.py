"""What a user may ask of a text, and how it is enforced: Spec (asked for), Compiled (for one vocabulary, shared),
Matcher (for one sequence). It knows no model and no sampling. Start with `base.py` and `spec.py`; each kind is a
module or room.
"""

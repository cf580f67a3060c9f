"""What each part of a safety filter refuses by itself: start with `refusals.py`. It knows no combinations of parts, and
no text that begins within a character or an escape.
"""

"""The readings of a text in which a filter looks for matches, by number, and where a row of `kernels.py` holds each.

Kernels and what calls them share these numbers; numba is not needed for them.
"""

from __future__ import annotations

READINGS = 4
WRITTEN, DOUBLE, SINGLE, NESTED = range(READINGS)
"""As the text is written; and with escapes decoded, between double quotation marks, between single ones, and between
double ones that are escaped themselves, as in a string of JSON inside a string."""
SPECIAL: tuple[tuple[bytes, ...], ...] = ((), (b'"', b"\\"), (b"'", b"\\"), (b'"', b"\\"))
"""What each reading does not read as the text is written."""
NUMBER, KEPT, ROW = READINGS, 2 * READINGS, 2 * READINGS + 2
"""Places in a row: where its numbers begin, after the character and the escapes; where it ends without scratch, and
with it."""

"""Constraints: what a user may demand of a text, and how it is enforced. Spec (as asked for), Compiled (for one
vocabulary, shared), Matcher (for one sequence). They know no model and no sampling. Start with `base.py`, `spec.py` and
`kinds.py`, the table of kinds; each kind is a module or a room.

Importing the package fills that table, which stands above all kinds; it imports none of their compilers.
"""

from espalier.constraints import kinds as kinds

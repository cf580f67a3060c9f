"""Soft constraints: biases on logits instead of masks, towards JSON or the words of a list. They ban nothing. Start
with `spec.py`. Importing the package fills the table of their kinds.
"""

from espalier.constraints.soft import kinds as kinds

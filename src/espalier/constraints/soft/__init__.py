"""Soft constraints: biases on logits instead of masks, towards JSON or the words of a list. They ban nothing. Start
with `spec.py`.
"""

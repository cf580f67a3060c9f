"""Judges generated answers against known ones, row by row, and sums up with intervals.

`metrics.py` compares texts, `judge.py` asks a model, `evaluate.py` runs over a file, `files.py` writes what
HalluLens-style evaluations read.
"""

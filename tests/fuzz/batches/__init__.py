"""Inputs of batches, drawn at random and judged a second time by plain code: `run.py`."""

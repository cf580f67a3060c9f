"""Traces: what a run did, step by step, with measures, sums, files and the HTML page. It knows no model and no matcher.
Start with `steps.py` and `records.py`."""

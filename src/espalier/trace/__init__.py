"""What a run did, step by step: records, their measures and sums, files, the page. It knows no model and no matcher.
Start with `steps.py` and `records.py`.
"""

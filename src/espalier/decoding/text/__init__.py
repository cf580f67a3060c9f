"""The text of one sequence: when it ends (`run.py`), stop strings and whole characters (`stops.py`), and ending in
time within a token limit (`token_limit.py`). It knows no logits.
"""

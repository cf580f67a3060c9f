"""A fuzzer of readers: `samples.py` makes a valid file of each kind, `changes.py` damages it, `child.py` reads it where
it can be ended, and `run.py` judges. Start with `python -m benchmarks.fuzz files`.
"""

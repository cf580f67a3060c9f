"""Measures of batch jobs: `overhead.py` over the bare engine, `queue.py` operations a second, `memory.py` by items."""

"""Runs many plans on one model: continuous batching, prefix cache, fair queue. It knows no requests and no threads.
Start with `scheduler.py`; `drive.py` runs it in the thread of whoever reads."""

"""Batch jobs in the database: files, batches, items with leases, attempts, results. All SQL of batch jobs is here.

It runs nothing; `jobs/` says what it keeps to. Start with `open.py`; `queue.py` has the leases.
"""

from espalier.store.batches.tables import ATTEMPTS, BATCHES, FILES, ITEMS, RESULTS

__all__ = ["ATTEMPTS", "BATCHES", "FILES", "ITEMS", "RESULTS"]

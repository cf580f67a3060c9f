"""Batch jobs: states, what is asked of a queue and of an executor, and the worker between the two.

It knows no database, no HTTP and no engine: `store/batches/` is the queue, `server/batching/` will execute. Start with
`states.py`, then `worker.py`.
"""

"""Activations and what is known of their requests, in LMDB: versioned, without pickle, whole requests or nothing.

`layout.py` says what stands where; `base.py` opens, writes and reads; `writer.py` puts a queue and a thread before it;
`verify.py`, `prune.py` and `export.py` are what one does with a store. It knows no model. Start reading with
`record.py`, the value that is stored.
"""

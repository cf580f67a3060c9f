"""Reads the stores that HalluLens wrote from June 2025 on: LMDB, JSON and NPY, Zarr, memory-mapped captures.

A store is opened read-only, nothing is created in it, no pickle runs code, and an LMDB file is read in a process of its
own, since a damaged one can end the process that maps it. Vectors are not read: only what is known of each request.
Start reading with `open.py`.
"""

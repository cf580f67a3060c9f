"""Kernels, the functions that numba compiles: how they are declared, where their compiled code is kept, and how a
process gets it before a text needs it.

`compiled.py` declares one; only modules of kernels import it, since it imports numba. `folder.py` says where the code
of such a module is kept. `group.py`, where to start reading, loads the modules that are needed together, and has what
is not compiled yet compiled by processes of their own (`worker.py`). The package knows no kernel.
"""

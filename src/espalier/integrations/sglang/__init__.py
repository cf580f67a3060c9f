"""A grammar backend for SGLang: `register()` before the server starts, then `--grammar-backend espalier`. `backend.py`
is the backend.
"""

from espalier.integrations.sglang.backend import ConstraintBackend, ConstraintGrammar, register

__all__ = ["ConstraintBackend", "ConstraintGrammar", "register"]

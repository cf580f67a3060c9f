"""The compiler of an engine of others, in which all requests have one owner: it keeps more constraints than a server
does for one of its owners.
"""

from __future__ import annotations

from espalier.constraints.compiler import Compiler
from espalier.tokens.vocab import Vocab
from espalier.wiring import App

CONSTRAINTS_KEPT = 256
"""Compiled constraints that are found again, least recently used dropped."""


def engine_compiler(app: App, vocab: Vocab) -> Compiler:
    """The compiler of an engine over a vocabulary."""
    compiler = app.compiler(vocab)
    compiler.cache.most_of_owner = compiler.cache.most_of_all = CONSTRAINTS_KEPT
    return compiler

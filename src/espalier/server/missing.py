"""Tells in one line which extra is missing where a program such as uvicorn imports the applications.

Such programs print a traceback for any other exception, and its last line names a package but not what to do. It knows
no application.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from espalier.errors import MissingDependency

OURS = "espalier"
ENGINES = ("transformers", "llama_cpp")
"""Packages one of which runs a model."""


@contextmanager
def one_line() -> Iterator[None]:
    """Imports inside end the program with one line if a package of another project is missing. Raises SystemExit."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package == OURS:
            raise
        has_engine = any(find_spec(name) is not None for name in ENGINES)
        extra = "server" if has_engine else "server,transformers"
        raise SystemExit(f"{OURS}: {MissingDependency(package, extra=extra)}") from error

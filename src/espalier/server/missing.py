"""Tells in one line which extra is missing where a program such as uvicorn imports the applications.

Such programs print a traceback for any other exception, and its last line names a package but not what to do. It knows
no application.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from espalier.errors import MissingDependency
from espalier.optional import is_importable, optional_imports

ENGINES = ("transformers", "llama_cpp")
"""Packages one of which runs a model."""


@contextmanager
def one_line() -> Iterator[None]:
    """Imports inside end the program with one line if a package of another project is missing. Raises SystemExit."""
    try:
        with optional_imports("server"):
            yield
    except MissingDependency as error:
        has_engine = any(is_importable(name) for name in ENGINES)
        needed = error if has_engine else MissingDependency(error.package, extra="server,transformers")
        raise SystemExit(f"espalier: {needed}") from error

"""Imports of optional packages: the one place where a package that is missing becomes `MissingDependency`.

`distribution.py` has the table of extras and their modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from espalier.distribution import EXTRAS, extra_of
from espalier.errors import MissingDependency

OURS = "espalier"


@contextmanager
def optional_imports(extra: str | None = None) -> Iterator[None]:
    """Imports inside raise MissingDependency where a package is missing. extra: the one that installs the packages
    imported inside, theirs included; None looks the package up, and one that no extra installs raises as Python
    does."""
    try:
        yield
    except ImportError as error:
        module = (error.name or "").partition(".")[0]
        known = extra_of(module)
        # With a name, an ImportError is of a package that is there and lacks something.
        is_missing = isinstance(error, ModuleNotFoundError) or not module
        if not is_missing or module == OURS or (known is None and extra is None):
            raise
        if known is not None:
            raise MissingDependency(known.package_of(module) or module, extra=known.name) from error
        raise MissingDependency(module or next(iter(EXTRAS[extra or ""].modules.values())), extra=extra) from error


def check_extra(extra: str) -> None:
    """Raises MissingDependency for the first module of an extra that is not installed; imports nothing."""
    for module, package in EXTRAS[extra].modules.items():
        if not is_importable(module):
            raise MissingDependency(package, extra=extra)


def is_importable(module: str) -> bool:
    """Whether a module is installed. Of one below another, the upper one is imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the upper one is not there
        return False
    except ValueError:  # `sys.modules` holds None or a module without a spec for it
        return False

"""The version, kept in one place: the package's metadata."""

from importlib.metadata import version

__version__ = version("espalier")

"""The version, kept in one place: the metadata of the distribution."""

from importlib.metadata import PackageNotFoundError, version

from espalier.distribution import DISTRIBUTION

try:
    __version__ = version(DISTRIBUTION)
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"

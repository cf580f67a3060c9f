"""Espalier: constrained decoding for local language models that shows what the constraint did."""

from typing import TYPE_CHECKING

from espalier.exports import lookup as __getattr__
from espalier.exports import names as __dir__
from espalier.exports import public as __all__

if TYPE_CHECKING:
    from espalier.exports import *  # noqa: F403  # for type checkers alone
    from espalier.version import __version__ as __version__

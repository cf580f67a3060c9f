"""A digest of the code that makes a kept file, so that other code, another Python or NumPy makes it again."""

from __future__ import annotations

import hashlib
import sys
import unicodedata
from functools import cache
from importlib.metadata import version
from pathlib import Path


@cache
def digest_of_code(*patterns: str) -> str | None:
    """patterns: of files below the package, `grammar/*.py`. None where the code is not in files."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256(f"{sys.version} {unicodedata.unidata_version} {version('numpy')}".encode())
    count = 0
    try:
        for pattern in patterns:
            for path in sorted(package.glob(pattern)):
                digest.update(path.read_bytes())
                count += 1
    except OSError:
        return None
    return digest.hexdigest() if count else None

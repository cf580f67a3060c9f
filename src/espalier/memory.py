"""What the system says of this process's memory."""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes() -> int | None:
    """Memory that the process holds now; None where the system does not say. Unlike `ru_maxrss`, which begins with that
    of the parent."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")

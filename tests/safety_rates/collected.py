"""Ordinary text to count false alarms on: files that are on this machine, chosen by path when the program runs and not
copied: the standard library and its tests' neighbours, READMEs and metadata of installed packages, JSON of packages,
and generated logs and prose where none lie about (`tests/safety_rates/corpus.py`).

About 1 MB for each kind. What they hold differs between machines, so the figures do as well.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tests.safety_rates.corpus import corpus

SIZE = 1_000_000
LONGEST = 60_000
"""Characters of one file."""


def collected(size: int = SIZE) -> Iterator[tuple[str, list[str]]]:
    """Kind and texts."""
    library = Path(sysconfig.get_paths()["stdlib"])
    packages = Path(sysconfig.get_paths()["purelib"])
    yield "code (standard library)", _some(library, ("*.py",), size, without=("test", "site-packages"))
    yield "code (packages)", _some(packages, ("*.py",), size, without=("test", "safety"))
    yield "prose (READMEs, licences)", _some(packages, ("METADATA", "*.md", "*.rst", "LICENSE*"), size)
    yield "prose (system)", _some(Path("/usr/share/doc"), ("*.txt", "README*", "copyright"), size)
    yield "JSON (packages)", _some(packages, ("*.json",), size)
    yield "web (packages)", _some(packages, ("*.js", "*.html", "*.css"), size)
    yield "shell (system)", _some(Path("/usr"), ("*.sh",), size, without=("lib/python", "proc"))
    yield "logs (system)", _some(Path("/var/log"), ("*.log",), size)
    made = corpus(8 * 250_000, seed=11)
    for kind in ("logs", "prose", "numbers"):
        yield f"{kind} (generated)", [made[kind]]


def _some(folder: Path, patterns: tuple[str, ...], size: int, without: tuple[str, ...] = ()) -> list[str]:
    """Texts of files below a folder, every n-th so that all parts of it are met; about `size` bytes."""
    paths: list[Path] = []
    for pattern in patterns:
        paths += [
            path
            for path in sorted(folder.rglob(pattern))
            if path.is_file() and not any(part in str(path.relative_to(folder)) for part in without)
        ]
    step = max(1, len(paths) * 6_000 // size)
    found: list[str] = []
    total = 0
    for path in paths[::step]:
        try:
            text = path.read_text(encoding="utf-8")[:LONGEST]
        except (OSError, UnicodeDecodeError):
            continue  # not a text, or not ours to read
        found.append(text)
        total += len(text.encode())
        if total >= size:
            break
    return found

"""Where a file of the clone lies in the site, and which files the pages link to. It reads no mkdocs configuration."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)
DOCS, CLONE = "docs/", "clone/"
"""Pages of docs/ lie at the top of the site, everything else of the clone in a folder of its own."""


def in_site(name: str) -> str:
    """The place in the site of a file, given by its path in the clone."""
    return name.removeprefix(DOCS) if name.startswith(DOCS) else CLONE + name


def in_clone(place: str) -> str:
    """The inverse of `in_site`."""
    return place.removeprefix(CLONE) if place.startswith(CLONE) else DOCS + place


def linked(root: Path) -> list[str]:
    """The files and folders outside docs/ that pages link to, and those that these link to, as paths in the clone."""
    todo = [path.relative_to(root).as_posix() for path in sorted((root / "docs").rglob("*.md"))]
    seen, found = set(todo), []
    while todo:
        name = todo.pop()
        text = FENCE.sub("", (root / name).read_text(encoding="utf-8"))
        for target in LINK.findall(text):
            other = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if other in seen or not (root / other).exists():
                continue
            seen.add(other)
            if not other.startswith(DOCS):
                found.append(other)
            if other.endswith(".md"):
                todo.append(other)
    return sorted(found)

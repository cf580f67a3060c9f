"""Reads the code blocks of a Markdown page: language, text, place, the output shown below, and why one is not run.

A block is run unless the line above it is `<!-- not run: REASON -->`. A `text` block right below a block is what that
block prints. It knows nothing of how blocks are run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^(?P<indent> {0,3})(?P<mark>```+|~~~+)(?P<language>[a-z]*)[ \t]*$")
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
RUN = frozenset({"bash", "console", "python"})
DATA = frozenset({"json", "yaml", "toml", "gbnf", "text", "html"})
GAP, ANY = "...", "…"
"""A line `...` in a shown output stands for any lines, `…` within a line for any characters."""


@dataclass(frozen=True, slots=True)
class Block:
    """line: of its first line of text, from 1. reason: why it is not run. output: what it prints, as the page shows."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None = None
    output: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(path: Path) -> list[Block]:
    """The blocks of a page, in order. Raises ValueError for a fence that is not closed."""
    lines, page = path.read_text(encoding="utf-8").splitlines(), path.relative_to(ROOT).as_posix()
    found: list[Block] = []
    above, number = "", 0
    while number < len(lines):
        opened = FENCE.match(lines[number])
        number += 1
        if opened is None:
            above = lines[number - 1].strip() or above
            continue
        start = number
        while number < len(lines) and lines[number].strip() != opened["mark"]:
            number += 1
        if number == len(lines):
            raise ValueError(f"{page}:{start}: the block is not closed")
        indent = len(opened["indent"])
        text = "".join(line[indent:] + "\n" for line in lines[start:number])
        number += 1
        if opened["language"] == "text" and above == "" and found and found[-1].language in RUN:
            found[-1] = replace(found[-1], output=text)
        else:
            reason = NOT_RUN.fullmatch(above)
            found.append(Block(page, start + 1, opened["language"], text, reason[1] if reason else None))
        above = ""
    return found


def commands_of(block: Block) -> list[tuple[str, str]]:
    """(command, shown output) of a console block. Raises ValueError where it does not begin with a command."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:].rstrip("\n"), ""))
        elif not found:
            raise ValueError(f"{block.place}: a console block begins with `$ `")
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def shows(shown: str, printed: str) -> bool:
    """Whether a page's output is what was printed, apart from what it leaves out."""
    parts = []
    for line in shown.rstrip("\n").split("\n"):
        if line.strip() == GAP:
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(".*?".join(re.escape(piece) for piece in line.rstrip().split(ANY)) + r"[ \t]*\n")
    return re.fullmatch("".join(parts), printed.rstrip("\n") + "\n") is not None

"""Text fitted to the columns of a terminal: shortened, wrapped, control characters escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len, chop_cells, set_cell_size

WIDTH = 80
ISOLATE, END_ISOLATE = "\u2068", "\u2069"  # between them a direction has no effect on what is outside


def shown(text: str) -> str:
    """A text on one line, with control characters as escapes."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def middle(text: str, cells: int) -> str:
    """A text of at most so many columns; a longer one loses its middle."""
    if cell_len(text) <= cells:
        return text
    head = set_cell_size(text, (cells - 1) // 2).rstrip()
    tail = chop_cells(text[::-1], cells - 1 - cell_len(head))[0][::-1]
    return f"{head}…{tail}"


def wrapped(text: str, cells: int) -> list[str]:
    """Lines of at most so many columns, broken between words where that is possible."""
    lines: list[str] = []
    for word in _words(text.split(), cells):
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= cells:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _words(words: Iterable[str], cells: int) -> Iterator[str]:
    for word in words:
        yield from chop_cells(word, cells) if cell_len(word) > cells else [word]


def clip(text: str, cells: int) -> str:
    """A text of at most so many columns; a longer one loses its end. The end of an isolate is written again."""
    if cell_len(text) <= cells:
        return text
    kept = set_cell_size(text, cells - 1).rstrip()
    unclosed = kept.count(ISOLATE) - kept.count(END_ISOLATE)
    return f"{kept}{END_ISOLATE * unclosed}…"

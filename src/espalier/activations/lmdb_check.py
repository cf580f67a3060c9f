"""Checks every page of an LMDB environment that is going to be mapped: LMDB trusts its pages, so a damaged one ends the
process with a signal, or makes it run for ever. Read with plain reads (`lmdb_file.py`), within a transaction that keeps
a writer from using the pages anew."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from espalier.activations.lmdb_file import BIG, METAS, NO_PAGE, SUBDATABASE, BadPage, Page, PageFile, Tree
from espalier.time_limit import check

INTEGER_KEY = 0x08
"""The flag of the database of freed pages."""
MAX_DEPTH = 30
"""LMDB's own cursors end at 32 pages."""


def damage(path: Path, transaction: Any) -> str:
    """Says which page of a data file is damaged, "" where none is. transaction: one of the environment, for reading.
    Values are not looked at. Raises OSError."""
    with PageFile(path) as file:
        meta = next((meta for meta in file.metas if meta.transaction == transaction.id()), None)
        if meta is None:
            return "its first pages do not belong together"
        seen: set[int] = set()
        try:
            for tree in (meta.free, meta.main):
                _check_tree(file, tree, seen, is_free=tree is meta.free, last=meta.last)
        except BadPage as error:
            return str(error)
    return ""


def _check_tree(file: PageFile, tree: Tree, seen: set[int], *, is_free: bool, last: int) -> None:
    """Raises BadPage."""
    if tree.flags != (INTEGER_KEY if is_free else 0):
        raise BadPage(f"a database has the flags {tree.flags:#x}")
    waiting = [] if tree.root == NO_PAGE else [(tree.root, 1)]
    entries = 0
    while waiting:
        check()
        number, depth = waiting.pop()
        if number in seen or not METAS <= number <= last or depth > MAX_DEPTH:
            raise BadPage(f"page {number} is named where it cannot stand")
        seen.add(number)
        try:
            page = file.page(number)
            if len(page) < (1 if page.is_leaf else 2):
                raise BadPage("it has too few rows")
            if page.is_leaf:
                entries += len(page)
                for inner in _check_leaf(file, page, seen, is_free=is_free, last=last):
                    _check_tree(file, inner, seen, is_free=False, last=last)
            else:
                waiting += [(page.child(place)[1], depth + 1) for place in range(len(page))]
        except BadPage as error:
            raise BadPage(f"page {number} is damaged: {error}") from error
    if entries != tree.entries:
        raise BadPage(f"a database says that it has {tree.entries:,} entries, and has {entries:,}")


def _check_leaf(file: PageFile, page: Page, seen: set[int], *, is_free: bool, last: int) -> Iterator[Tree]:
    """The databases that the rows of a leaf describe. Raises BadPage."""
    before = b""
    for place in range(len(page)):
        node = page.node(place)
        if not is_free and node.key <= before:
            raise BadPage(f"row {place} is not in order")
        before = node.key
        if node.flags & BIG:
            pages = file.overflow(node)
            if not pages or pages[-1] > last or not seen.isdisjoint(pages):
                raise BadPage(f"the value of row {place} stands where it cannot")
            seen.update(pages)
        if node.flags & SUBDATABASE:
            yield Tree.read(node.data)
        elif node.flags & ~BIG:
            raise BadPage(f"row {place} has the flags {node.flags:#x}")
        if is_free:
            _check_freed(file.value(node), last)


def _check_freed(value: bytes, last: int) -> None:
    """A list of freed pages: their count, then each, the largest first. Raises BadPage."""
    numbers = struct.unpack(f"<{len(value) // 8}Q", value[: len(value) // 8 * 8])
    if not numbers or numbers[0] >= len(numbers):
        raise BadPage("its list of freed pages is cut")
    pages = numbers[1 : 1 + numbers[0]]
    if any(a <= b for a, b in pairwise(pages)) or any(not METAS <= p <= last for p in pages):
        raise BadPage("its list of freed pages is damaged")

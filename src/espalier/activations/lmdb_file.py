"""Reads an LMDB data file page by page, with plain reads: whatever is damaged, nothing is mapped, so nothing ends the
process.

    page 0, 1   meta: the page size, and of each transaction the roots of the trees
    branch      keys and the pages of their subtrees
    leaf        keys and values; a value that is larger than a page stands on overflow pages of its own
    overflow    a header, then the bytes of one value over one or more pages

The layout is that of LMDB 0.9 (data version 1) on 64-bit little-endian machines. What a value means is not known here.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

BRANCH, LEAF, OVERFLOW, META, LEAF2, SUBPAGE = 0x01, 0x02, 0x04, 0x08, 0x20, 0x40
BIG, SUBDATABASE, DUPLICATES = 0x01, 0x02, 0x04
"""Flags of a node in a leaf: its value stands on overflow pages; it is a database; it has several values."""
DUPSORT = 0x04
"""A flag of a database."""
MAGIC, VERSION = 0xBEEFC0DE, 1
NO_PAGE = 0xFFFFFFFFFFFFFFFF
SIZES = (4096, 16384, 8192, 32768, 65536, 2048, 1024, 512)
"""Page sizes that are tried where no meta page tells, the usual ones first."""
_HEAD = struct.Struct("<QHHHH")  # page number, padding, flags, and lower and upper, or the number of overflow pages
_NODE = struct.Struct("<HHHH")  # low and high half of the size or page, flags, bytes of the key
_META = struct.Struct("<IIQQ")  # magic, version, address, map size
_TREE = struct.Struct("<IHHQQQQQ")  # padding, flags, depth, pages of three kinds, entries, root
_TAIL = struct.Struct("<QQ")  # last page, transaction
METAS = 2
LARGEST_VALUE = 1 << 30


class BadPage(Exception):
    """The page, or the node, is not what it should be; the text says why."""


class Tree(NamedTuple):
    """One database: its root page, and how many entries it says to have."""

    flags: int
    entries: int
    root: int

    @classmethod
    def read(cls, data: bytes) -> Tree:
        """From the 48 bytes that describe it. Raises BadPage."""
        if len(data) < _TREE.size:
            raise BadPage("the description of a database is cut")
        _, flags, _, _, _, _, entries, root = _TREE.unpack_from(data)
        return cls(flags, entries, root)


class Meta(NamedTuple):
    """One of the two meta pages. page_size: of the whole file. free: the tree of freed pages. last: the last page."""

    page_size: int
    free: Tree
    main: Tree
    last: int
    transaction: int


class LeafRow(NamedTuple):
    """One row of a leaf. data: the value, or for a big one the number of its first overflow page. size: the value's."""

    key: bytes
    flags: int
    data: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a tree whose header is right; its nodes are checked one by one."""

    number: int
    flags: int
    lower: int
    data: bytes

    @property
    def is_leaf(self) -> bool:
        return bool(self.flags & LEAF)

    def __len__(self) -> int:
        return (self.lower - _HEAD.size) // 2

    def node(self, place: int) -> LeafRow:
        """Raises BadPage."""
        (at,) = struct.unpack_from("<H", self.data, _HEAD.size + 2 * place)
        if at < self.lower or at + _NODE.size > len(self.data):
            raise BadPage(f"row {place} is said to stand at byte {at}, outside the page")
        low, high, flags, key_size = _NODE.unpack_from(self.data, at)
        begin, size = at + _NODE.size + key_size, low | high << 16
        held = 0 if not self.is_leaf else 8 if flags & BIG else size
        if begin + held > len(self.data):
            raise BadPage(f"row {place} does not fit into the page")
        return LeafRow(self.data[at + _NODE.size : begin], flags, self.data[begin : begin + held], size)

    def child(self, place: int) -> tuple[bytes, int]:
        """The least key and the page of a subtree; of the first one the key is empty. Raises BadPage."""
        node = self.node(place)
        return (node.key if place else b""), node.size | node.flags << 32


class PageFile:
    """A data file, open for reading. Use as a context manager, from one thread. Raises OSError."""

    def __init__(self, path: Path, page_size: int | None = None) -> None:
        """page_size: where it is known; else a meta page tells it, or the pages do."""
        self.path = path
        self._file = path.open("rb", buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size
        self.metas = self._read_metas()
        self.page_size = page_size or (self.metas[0].page_size if self.metas else self._guess())

    def __enter__(self) -> PageFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        """The pages that are there as a whole."""
        return self.size // self.page_size

    def page(self, number: int) -> Page:
        """A branch or a leaf. Raises BadPage."""
        data = self._read(number, self.page_size)
        said, _, flags, lower, upper = _HEAD.unpack_from(data)
        if not any(data):
            raise BadPage("the page is empty: all its bytes are zero")
        if said != number:
            raise BadPage(f"its header says that it is page {said}")
        if flags & (BRANCH | LEAF | OVERFLOW | META | LEAF2 | SUBPAGE) not in (BRANCH, LEAF):
            raise BadPage(f"its header says that it is no page of a tree (flags {flags:#x})")
        if not _HEAD.size <= lower <= upper <= self.page_size or lower % 2:
            raise BadPage(f"its header says that rows end at byte {lower} and begin at byte {upper}")
        return Page(number, flags, lower, data)

    def value(self, node: LeafRow) -> bytes:
        """The value of a row. Raises BadPage."""
        if not node.flags & BIG:
            return node.data
        if node.size > LARGEST_VALUE:
            raise BadPage(f"its value is said to have {node.size:,} bytes")
        (first,) = struct.unpack("<Q", node.data)
        data = self._read(first, _HEAD.size + node.size)
        said, _, flags, low, high = _HEAD.unpack_from(data)
        if said != first or not flags & OVERFLOW:
            raise BadPage(f"page {first}, on which its value begins, is damaged")
        if (low | high << 16) * self.page_size < len(data):
            raise BadPage(f"page {first} says that its value has fewer pages than its row says")
        return data[_HEAD.size :]

    def overflow(self, node: LeafRow) -> range:
        """The pages of a big value. Raises BadPage."""
        (first,) = struct.unpack("<Q", node.data)
        said, _, flags, low, high = _HEAD.unpack(self._read(first, _HEAD.size))
        count = low | high << 16
        if said != first or not flags & OVERFLOW or count * self.page_size < _HEAD.size + node.size:
            raise BadPage(f"page {first}, on which its value begins, is damaged")
        return range(first, first + count)

    def _read(self, number: int, count: int) -> bytes:
        """Bytes from the beginning of a page on. Raises BadPage where the file ends before."""
        begin = number * self.page_size
        if begin + count > self.size:
            raise BadPage(f"page {number} is behind the end of the file")
        try:
            data = os.pread(self._file.fileno(), count, begin)
        except OSError as error:
            raise BadPage(f"page {number} cannot be read: {error.strerror}") from error
        if len(data) < count:
            raise BadPage(f"page {number} is behind the end of the file")
        return data

    def _read_metas(self) -> list[Meta]:
        """The meta pages that can be read, the newest first."""
        first = self._meta_at(0, None)
        sizes = SIZES if first is None else (first.page_size,)
        second = next((meta for size in sizes if (meta := self._meta_at(size, size)) is not None), None)
        return sorted((meta for meta in (first, second) if meta is not None), key=lambda meta: -meta.transaction)

    def _meta_at(self, begin: int, page_size: int | None) -> Meta | None:
        data = os.pread(self._file.fileno(), _HEAD.size + _META.size + METAS * _TREE.size + _TAIL.size, begin)
        if len(data) < _HEAD.size + _META.size + METAS * _TREE.size + _TAIL.size:
            return None
        magic, version, _, _ = _META.unpack_from(data, _HEAD.size)
        trees = _HEAD.size + _META.size
        (size,) = struct.unpack_from("<I", data, trees)
        is_meta = magic == MAGIC and version == VERSION and _HEAD.unpack_from(data)[2] & META
        if not is_meta or size not in SIZES or page_size not in (None, size):
            return None
        free, main = (Tree.read(data[trees + place * _TREE.size :]) for place in range(METAS))
        last, transaction = _TAIL.unpack_from(data, trees + METAS * _TREE.size)
        return Meta(size, free, main, last, transaction)

    def _guess(self) -> int:
        """The page size under which the most pages say their own number."""

        def named(size: int) -> int:
            heads = (os.pread(self._file.fileno(), 8, at * size) for at in range(METAS, min(self.size // size, 2000)))
            return sum(struct.unpack("<Q", head)[0] == at for at, head in enumerate(heads, METAS) if len(head) == 8)

        return max(SIZES, key=named)


def nodes_of(page: Page) -> Iterator[tuple[int, LeafRow | BadPage]]:
    """Every row of a leaf with its place, or what is wrong with it."""
    for place in range(len(page)):
        try:
            yield place, page.node(place)
        except BadPage as error:
            yield place, error


def shortfall(path: Path, *, may_be_new: bool = False) -> str:
    """Says what a data file that was cut lacks, "" for a whole one, or one that is none of LMDB's. To be asked before a
    file is mapped: the first page that is not there ends the process. may_be_new: an empty file is a store that begins.
    Raises OSError."""
    with PageFile(path) as file:
        if not file.size:
            return "" if may_be_new else "it is empty"
        if not file.metas:
            least = METAS * SIZES[0]
            is_begun = os.pread(file._file.fileno(), 4, _HEAD.size) == struct.pack("<I", MAGIC)
            return f"it is cut: it has {file.size:,} bytes of its first pages" if is_begun and file.size < least else ""
        needed = (max(meta.last for meta in file.metas) + 1) * file.page_size
        return f"it is cut: it has {file.size:,} bytes, and its pages need {needed:,}" if file.size < needed else ""

"""Copies what can still be read of a damaged LMDB environment into a new one, page by page, and lists each loss.

The tree is walked from its root. Where a page of it is damaged, the keys below it are lost, and only then leaves that
nothing points to are looked for in the whole file: those with keys of a lost range are taken. They may be older than
what was lost, which is said. Values are copied as bytes and not looked into.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from espalier.activations.foreign.lmdb import SUFFIX, data_file, lmdb_store
from espalier.activations.foreign.own import LAYOUT as OWN
from espalier.activations.foreign.own import OwnStore
from espalier.activations.foreign.store import Found, RequestStore, SalvageLosses, store_error
from espalier.activations.lmdb_file import (
    DUPLICATES,
    DUPSORT,
    METAS,
    NO_PAGE,
    SUBDATABASE,
    BadPage,
    LeafRow,
    Page,
    PageFile,
    Tree,
    nodes_of,
)
from espalier.activations.store import layout, rebuild
from espalier.activations.store.locks import NAME as LOCK
from espalier.errors import InputError, OutputError
from espalier.json_record import JsonRecord
from espalier.optional import optional_imports

DEPTH = 64
ID_BYTES = 8
"""Of the number of a page or a transaction."""
MAX_KEY = 511
"""Bytes of a key in LMDB."""
MAP_BYTES = 1 << 40
SMALLEST_MAP = 1 << 28
BATCH_ROWS = 1_000


class Loss(NamedTuple):
    """What cannot be read. page: its number, None for a whole file. reason: a clause. keys: what is lost, in words."""

    page: int | None
    reason: str
    keys: str = ""

    def __str__(self) -> str:
        place = "" if self.page is None else f"page {self.page}: "
        return f"{place}{self.reason}{f'; {self.keys}' if self.keys else ''}"


@dataclass(slots=True)
class Salvage(JsonRecord):
    """What was copied, and what was lost."""

    #: Rows in the new environment, those of named databases included.
    rows: int = 0
    #: Rows that the damaged environment says to have; None where no meta page can be read.
    expected: int | None = None
    #: Rows from leaves that nothing points to: they may be older than what was lost.
    strays: int = 0
    losses: list[Loss] = field(default_factory=list)

    @property
    def said(self) -> str:
        """How much is left, in words."""
        of = "rows can be read" if self.expected is None else f"of {self.expected:,} rows can be read"
        stray = f"; {self.strays:,} of them stood on pages that nothing points to, and may be old"
        return f"{self.rows:,} {of}{stray if self.strays else ''}"


class Range(NamedTuple):
    """Keys from `least` on and below `below`; None: up to the last."""

    least: bytes
    below: bytes | None

    def holds(self, key: bytes) -> bool:
        return self.least <= key and (self.below is None or key < self.below)

    def __str__(self) -> str:
        if self.below is None:
            return f"the keys from {_show_key(self.least)} on are lost" if self.least else "all keys are lost"
        return f"the keys from {_show_key(self.least)} to below {_show_key(self.below)} are lost"


class SalvagedRow(NamedTuple):
    """database: the name of a named one, None for the unnamed one."""

    database: bytes | None
    key: bytes
    value: bytes


def salvage(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Salvage:
    """Copy what can be read of an LMDB environment into a new folder. source: a folder with data.mdb, or the file.

    Raises InputError where there is no such file, or the target is there already; OutputError where it cannot be
    written; MissingDependency without lmdb.
    """
    folder, made = Path(source).expanduser(), Path(target).expanduser()
    data = data_file(folder)
    if made.exists():
        raise InputError(f"{made} is there already", hint="name a new folder", field="target")
    try:
        file = PageFile(data)
    except OSError as error:
        raise store_error(folder, error.strerror or str(error)) from error
    salvage = Salvage()
    with file:
        _write(made, _Reading(file, salvage), salvage)
    if salvage.expected is not None and salvage.rows < salvage.expected and not salvage.losses:
        missing = salvage.expected - salvage.rows
        salvage.losses.append(Loss(None, "some page has fewer rows than it had", f"{missing:,} rows are lost"))
    return salvage


def salvage_pair(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> dict[str, Salvage]:
    """As `salvage`, for every environment of a store: of two, NAME and NAME_metadata, both are copied under the new
    name. Returns what became of each, by the path of its copy."""
    folder, made = Path(source).expanduser(), Path(target).expanduser()
    beside = folder.with_name(folder.name + SUFFIX)
    pairs = [(folder, made), (beside, made.with_name(made.name + SUFFIX))]
    known = [(old, new) for old, new in pairs if data_file(old).is_file()]
    if not known:
        raise store_error(folder, "there is no LMDB environment at this path")
    return {str(new): salvage(old, new) for old, new in known}


def _write(target: Path, reading: _Reading, salvage: Salvage) -> None:
    with optional_imports("activations"):
        import lmdb  # noqa: PLC0415  # an extra
    try:
        target.mkdir(parents=True)
        with _create_database(lmdb, target) as environment:
            named: dict[bytes, Any] = {}
            rows = reading.rows()
            while batch := list(islice(rows, BATCH_ROWS)):
                for row in batch:
                    if row.database is not None and row.database not in named:
                        named[row.database] = environment.open_db(row.database)
                with environment.begin(write=True) as writing:
                    for row in batch:
                        writing.put(row.key, row.value, db=None if row.database is None else named[row.database])
            if reading.is_own:
                rebuild.complete(environment, named)
                (target / LOCK).touch()
            with environment.begin() as looking:
                salvage.rows = environment.stat()["entries"] - len(named)
                salvage.rows += sum(looking.stat(db=database)["entries"] for database in named.values())
    except (OSError, lmdb.Error) as error:
        raise OutputError(f"cannot write {target}: {error}") from error


def _create_database(lmdb: Any, target: Path) -> Any:
    size = MAP_BYTES
    while True:
        try:
            return lmdb.open(str(target), map_size=size, max_dbs=len(layout.DATABASES) + 8)
        except (MemoryError, lmdb.MemoryError):
            if size <= SMALLEST_MAP:
                raise
            size //= 4


@dataclass(frozen=True, slots=True)
class SalvagedStore:
    """What is left of a damaged LMDB store. reader: opens the copy. folder: where the copy lies while it is read."""

    path: Path
    environment: Path
    layout: str
    reader: Callable[[Path], RequestStore]
    folder: Path

    def found(self) -> Iterator[Found]:
        """Each loss, then the entries. Raises as `salvage`, and as the store that reads the copy."""
        with tempfile.TemporaryDirectory(prefix=".espalier-", dir=self.folder) as folder:
            copy = Path(folder) / "salvaged"
            salvaged = salvage(self.environment, copy)
            yield SalvageLosses(salvaged.said, tuple(map(str, salvaged.losses)))
            yield from self.reader(copy).found()


def salvaged_store(path: Path, folder: Path) -> SalvagedStore | None:
    """The LMDB store at a path, of ours or of others, read as far as it can be; None where there is none."""
    store = lmdb_store(path)
    if store is None:
        return None
    if (path / LOCK).is_file():
        return SalvagedStore(path, path, OWN, OwnStore, folder)
    return SalvagedStore(path, store.environment, store.layout, lambda copy: replace(store, environment=copy), folder)


class _Reading:
    """One pass over a damaged file."""

    def __init__(self, file: PageFile, salvage: Salvage) -> None:
        self._file, self._found = file, salvage
        #: Whether the file is a store of ours, whose rows stand in named databases.
        self.is_own = (file.path.parent / LOCK).exists()
        self._visited: set[int] = set(range(METAS))
        self._lost: list[tuple[bytes | None, Range]] = []  # with the database
        self._strays_seen: set[tuple[bytes | None, bytes]] = set()

    def rows(self) -> Iterator[SalvagedRow]:
        """Strays first, so that what the tree holds replaces them; so the tree is walked twice, once for its pages."""
        file, salvage = self._file, self._found
        if file.metas:
            newest = file.metas[0]
            salvage.expected = newest.main.entries
            if len(file.metas) < METAS:
                salvage.losses.append(
                    Loss(None, f"one of the meta pages is damaged; read as of transaction {newest.transaction}")
                )
            leaves = list(self._leaves(newest.main, None))
            freed = self._read_freed_pages(newest.free)
        else:
            salvage.losses.append(
                Loss(None, "no meta page can be read: rows of all ages are taken", "all keys are lost")
            )
            self._lost.append((None, Range(b"", None)))
            leaves, freed = [], set()
        if self._lost:
            yield from self._strays(freed)
        for number, within, database in leaves:
            yield from self._rows_of(number, within, database)

    def _leaves(self, tree: Tree, database: bytes | None) -> Iterator[tuple[int, Range, bytes | None]]:
        """The leaves of a tree in the order of their keys, those of named databases behind the leaf that names them."""
        if tree.root == NO_PAGE:
            return
        stack = [(tree.root, Range(b"", None), 0)]
        while stack:
            number, within, depth = stack.pop()
            try:
                page = self._page(number, depth)
            except BadPage as error:
                self._lose(number, str(error), within, database)
                continue
            if page.is_leaf:
                yield number, within, database
                if database is None:
                    yield from self._read_databases(page)
            else:
                children = [*self._children(page, within, database)]
                stack += [(child, part, depth + 1) for child, part in reversed(children)]

    def _page(self, number: int, depth: int) -> Page:
        if number in self._visited:
            raise BadPage("two pages point to it")
        if depth > DEPTH:
            raise BadPage("the tree is deeper than any tree is")
        page = self._file.page(number)
        self._visited.add(number)
        return page

    def _children(self, page: Page, within: Range, database: bytes | None) -> Iterator[tuple[int, Range]]:
        """The subtrees of a branch. A place that is damaged loses the keys up to the next one."""
        known: list[tuple[bytes, int | None, str]] = []
        for place in range(len(page)):
            try:
                key, number = page.child(place)
                least = key if place else within.least
                if known and not known[-1][0] <= least:
                    raise BadPage(f"row {place} of a branch is out of order")
                known.append((least, number, ""))
            except BadPage as error:
                known.append((known[-1][0] if known else within.least, None, str(error)))
        ends = [*(least for least, _, _ in known[1:]), within.below]
        for (least, child, why), below in zip(known, ends, strict=True):
            if child is None:
                self._lose(page.number, why, Range(least, below), database)
            else:
                yield child, Range(least, below)

    def _read_databases(self, page: Page) -> Iterator[tuple[int, Range, bytes | None]]:
        for _, node in nodes_of(page):
            if isinstance(node, BadPage) or not node.flags & SUBDATABASE:
                continue
            try:
                tree = Tree.read(node.data)
            except BadPage as error:
                self._found.losses.append(Loss(page.number, f"the database {_show_key(node.key)}: {error}"))
                continue
            if tree.flags & DUPSORT:
                self._found.losses.append(
                    Loss(
                        page.number, f"the database {_show_key(node.key)} has several values for a key: it is left out"
                    )
                )
                continue
            if self._found.expected is not None:
                self._found.expected += tree.entries - 1  # the row that names it is none of the user's
            yield from self._leaves(tree, node.key)

    def _rows_of(self, number: int, within: Range, database: bytes | None) -> Iterator[SalvagedRow]:
        """The rows of a leaf of the tree; each that cannot be read is a loss."""
        page, last = self._file.page(number), None
        for place, node in nodes_of(page):
            if isinstance(node, BadPage):
                self._found.losses.append(Loss(number, str(node), "one row is lost"))
                continue
            if node.flags & SUBDATABASE:
                continue
            if not within.holds(node.key) or (last is not None and node.key <= last):
                self._found.losses.append(
                    Loss(
                        number, f"the key of row {place}, {_show_key(node.key)}, is out of order: it may be another one"
                    )
                )
            last = node.key
            row = self._row(number, database, node)
            if row is not None:
                yield row

    def _row(self, number: int, database: bytes | None, node: LeafRow) -> SalvagedRow | None:
        try:
            if node.flags & DUPLICATES:
                raise BadPage("it has several values")
            if not 0 < len(node.key) <= MAX_KEY:
                raise BadPage(f"its key has {len(node.key)} bytes")
            return SalvagedRow(database, node.key, self._file.value(node))
        except BadPage as error:
            self._found.losses.append(Loss(number, f"the row {_show_key(node.key)}: {error}", "one row is lost"))
            return None

    def _strays(self, freed: set[int]) -> Iterator[SalvagedRow]:
        """Rows of leaves that nothing points to and whose keys are lost; those of freed pages first: they are older."""
        pages = [number for number in range(METAS, len(self._file)) if number not in self._visited]
        for number in sorted(pages, key=lambda page_number: (page_number not in freed, page_number)):
            try:
                page = self._file.page(number)
            except BadPage:
                continue  # an overflow page, or one that was listed where the tree names it
            if not page.is_leaf:
                continue
            for _, node in nodes_of(page):
                if isinstance(node, BadPage) or node.flags & (SUBDATABASE | DUPLICATES):
                    continue
                row = self._stray(node)
                if row is not None:
                    self._strays_seen.add((row.database, row.key))
                    self._found.strays = len(self._strays_seen)
                    yield row

    def _stray(self, node: LeafRow) -> SalvagedRow | None:
        lost_in = {database for database, keys in self._lost if keys.holds(node.key)}
        if not lost_in or not 0 < len(node.key) <= MAX_KEY:
            return None
        try:
            value = self._file.value(node)
        except BadPage:
            return None
        if _lists_freed_pages(node.key, value):
            return None
        database = rebuild.database_of(value) if self.is_own else None
        if self.is_own and (database is None or lost_in.isdisjoint((database, None))):
            return None
        return SalvagedRow(database, node.key, value)

    def _read_freed_pages(self, tree: Tree) -> set[int]:
        """The freed pages, as far as the tree of them can be read; its own damage loses no rows."""
        before = len(self._found.losses), len(self._lost)
        freed: set[int] = set()
        for number, _, _ in list(self._leaves(tree, b"")):
            for _, node in nodes_of(self._file.page(number)):
                if isinstance(node, BadPage):
                    continue
                try:
                    data = self._file.value(node)
                except BadPage:
                    continue
                whole = len(data) // ID_BYTES
                freed.update(struct.unpack_from(f"<{whole}Q", data)[1:] if whole else ())
        del self._found.losses[before[0] :], self._lost[before[1] :]
        return freed

    def _lose(self, number: int, reason: str, keys: Range, database: bytes | None) -> None:
        self._lost.append((database, keys))
        self._found.losses.append(Loss(number, reason, str(keys)))


def _lists_freed_pages(key: bytes, value: bytes) -> bool:
    """Whether a row is one of LMDB's own: a transaction, and the number and numbers of the pages that it freed."""
    if len(key) != ID_BYTES or len(value) < ID_BYTES or len(value) % ID_BYTES:
        return False
    count, *pages = struct.unpack(f"<{len(value) // ID_BYTES}Q", value)
    return bool(count <= len(pages) and pages[:count] == sorted(set(pages[:count]), reverse=True))


def _show_key(key: bytes) -> str:
    return repr(key.decode("utf-8", "backslashreplace"))

"""Strings, numbers and constants without structure, as automata that all schemas of the process share.

Equal cases are converted once, and equal remainders of texts are one position, so what a matcher learns of a string in
one schema holds in every other. The table is replaced by an empty one when it grows past its bound; schemas in use keep
the old one. It knows no objects and arrays.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache, lru_cache

from espalier.automata.languages.dfa import Dfa
from espalier.automata.lazy.explored import LazyState, LazyStates
from espalier.automata.lazy.linear import Linear
from espalier.automata.lazy.rules import NoRules
from espalier.automata.lazy.table import Table
from espalier.errors import LimitExceeded
from espalier.grammar.ast import EMPTY, NEVER, CharClass, Literal, Node, Repeat, RuleRef, Sequence, fold, seq
from espalier.grammar.ranges import Ranges
from espalier.owners import owner
from espalier.schema.form import Boolean, Null, NumberForm, String
from espalier.schema.lowering.dfa_rules import dfa_table
from espalier.schema.lowering.linear import join
from espalier.schema.lowering.notation import JSON
from espalier.schema.lowering.numbers import spelled
from espalier.schema.lowering.rulebook import RuleBook, basic_rule, one_of, spelled_class
from espalier.schema.lowering.strings import MAX_MINIMISED, QUOTE, StringRules

MAX_TABLE = 400_000
"""Items and positions of the shared table, about; each takes some hundred bytes."""
MAX_LEAVES = 20_000
STRUCTURE = "{}[],: \t\n\r"
"""The characters between names and values."""

LeafCase = String | NumberForm | Boolean | Null


@dataclass(frozen=True, slots=True, kw_only=True)
class Remarks:
    """What of a case is not as demanded."""

    #: (keyword, reason) for what is not enforced.
    gaps: tuple[tuple[str, str], ...] = ()
    #: The same for what is left out.
    notes: tuple[tuple[str, str], ...] = ()
    #: Notes on all values of a type.
    general: tuple[tuple[str, str], ...] = ()
    #: Why nothing is written, although some values satisfy the case.
    limit: str | None = None


NO_REMARKS = Remarks()


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """start: the first position; None where no text fits. remarks: what of the case is not as demanded."""

    start: LazyState | None
    remarks: Remarks


def _is_structure(node: Node) -> bool:
    match node:
        case Literal(text):
            return not text.strip(STRUCTURE)
        case CharClass():
            return all(chr(low) in STRUCTURE and high - low < 2 for low, high in node.scalars())
        case _:
            return isinstance(node, Repeat | Sequence) and node != EMPTY


class ExpressionBook(RuleBook):
    """A book without rules: what would be a rule is written in place, and counts of any size are repetitions."""

    def basic(self, name: str) -> Node:  # type: ignore[override]  # no reference: nothing is a rule
        return inlined(name)

    def spell(self, ranges: Ranges) -> Node:
        return _spelled_class(ranges)

    def counted(self, item: Node, low: int, high: int | None) -> Node:
        return EMPTY if high == 0 else item if low == high == 1 else Repeat(item, low, high)


@cache
def inlined(name: str) -> Node:
    """A rule of BASICS without references."""

    def visit(node: Node, parts: list[Node]) -> Node:
        if isinstance(node, RuleRef):
            return inlined(node.name)
        return node.with_children(parts) if parts else node

    return fold(basic_rule(JSON, name), visit)


_spelled_class = lru_cache(maxsize=4096)(spelled_class)


class Leaves:
    """The shared table."""

    def __init__(self) -> None:
        self.explored = LazyStates(NoRules(), is_shared=True)
        self._known: dict[tuple[LeafCase, str, str], Leaf] = {}
        self._structure: dict[Node, LazyState | None] = {}
        self._members: dict[tuple[Node, LazyState | None], LazyState] = {}

    @property
    def is_full(self) -> bool:
        leaves = max(len(self._known), len(self._structure), len(self._members))
        return len(self.explored) > MAX_TABLE or leaves > MAX_LEAVES

    def leaf(self, case: LeafCase, keyword: str = "pattern") -> Leaf:
        """The automaton of a case. keyword: that of its patterns, in gaps."""
        key = (case, keyword, owner())
        leaf = self._known.get(key)
        if leaf is None:  # worked out without a lock: another schema must not wait for a costly pattern of this one
            automaton, remarks = converted(case, keyword)
            fresh = Leaf(None if automaton is None else self.start(automaton), remarks)
            leaf = self._known.setdefault(key, fresh)
        return leaf

    def start(self, automaton: Node | Linear) -> LazyState | None:
        """The first position of an expression or an automaton; None where no text fits."""
        place = self.explored.begin([automaton])
        return place if place.core else None

    def structure(self, node: Node) -> LazyState | None:
        """The first position of brackets, commas and whitespace; None for other expressions."""
        if isinstance(node, Literal):
            if node.text.strip(STRUCTURE):
                return None
        elif not isinstance(node, Repeat | Sequence) or node == EMPTY:
            return None
        start = self._structure.get(node)
        if start is None:
            todo: list[Node] = [node]
            while todo:
                part = todo.pop()
                if not _is_structure(part):
                    return None
                todo += part.children()
            start = self._structure[node] = self.start(node)
        return start

    def member(self, colon: Node, value: LazyState | None) -> LazyState:
        """A position from which a key's closing quotation mark and a colon are read, and then what is read from
        `value`, a position of this table; None for nothing."""
        key = (colon, value)
        member = self._members.get(key)
        if member is None:
            items, prefix = self.explored.items, join(QUOTE, colon)
            core = (items.end,) if value is None else value.core
            member = self.explored.start([items.at(prefix, item) for item in core])
            self._members[key] = member
        return member


_CURRENT = [Leaves()]
_SWAP = threading.Lock()


def current() -> Leaves:
    """The table for a new schema."""
    with _SWAP:
        if _CURRENT[0].is_full:
            _CURRENT[0] = Leaves()
        return _CURRENT[0]


def converted(case: LeafCase, keyword: str) -> tuple[Node | Table | None, Remarks]:
    """A case as an expression or an automaton, None where no text fits; and what is not as demanded."""
    match case:
        case Null():
            return inlined("null"), NO_REMARKS
        case Boolean():
            return inlined("boolean"), NO_REMARKS
        case NumberForm():
            number = spelled(case)
            node = number.node
            remarks = Remarks(gaps=number.gaps, general=(("number spelling", number.note),), limit=number.limit)
            if isinstance(node, str):
                return inlined(node), remarks
            if isinstance(node, Dfa):
                return dfa_table(node, one_of), remarks
            return (None if node == NEVER else node), remarks
        case String():
            return _string(case, keyword)


def _string(case: String, keyword: str) -> tuple[Node | Table | None, Remarks]:
    if case == String():
        return inlined("string"), NO_REMARKS
    book = ExpressionBook()
    rules = StringRules(book)
    rules.remarks(case, "")
    content = rules.content(case, "", keyword)
    automaton: Node | Table | None
    if isinstance(content, Dfa):
        automaton = quoted_dfa(content, book)
    else:
        automaton = None if content is None else seq(QUOTE, content, QUOTE)
    gaps, notes = (tuple((remark.keyword, remark.text) for remark in some) for some in (book.gaps, book.notes))
    return automaton, Remarks(gaps=gaps, notes=notes)


def quoted_dfa(dfa: Dfa, book: RuleBook) -> Node | Table:
    """A string whose value is in this language, with its quotes."""
    if len(dfa) <= MAX_MINIMISED:
        dfa = dfa.minimised()
    try:
        inner = dfa_table(dfa, book.spell)
    except LimitExceeded as error:
        book.gap("", "pattern", error.message)
        return inlined("string")
    last = len(inner.rows) + 1
    rows = [[(label, target + 1) for label, target in row] for row in inner.rows]
    for row, ends in zip(rows, inner.ends, strict=True):
        if ends:
            row.append((QUOTE, last))
    return Table(rows=[[(QUOTE, 1 + inner.start)], *rows, []], ends=[False] * last + [True])

"""Finds the arrays of a schema whose string items must be unique, so that a matcher can enforce it while text is
written.

A grammar cannot enforce it, because it would have to remember every item. Forbidding the token that completes a
repeated item causes no dead end if the items are unbounded strings, since an open string can always be made longer. It
knows no text and no tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from espalier.automata.languages.dfa import Dfa
from espalier.constraints.unique.spots import Spot, Spots
from espalier.grammar.ast import Literal
from espalier.schema.form import Array, Boolean, Case, NodeId, NormalForm, Null, NumberForm, Object, String, Values
from espalier.schema.lowering.arrays import MAX_LISTED, MAX_UNIQUE
from espalier.schema.lowering.layout import layout
from espalier.schema.lowering.others import undone
from espalier.schema.lowering.rulebook import RuleBook, escaped
from espalier.schema.lowering.spelling import literal
from espalier.schema.lowering.strings import StringRules
from espalier.schema.read.values import key
from espalier.time_limit import check as check_time

MAX_SPOTS = 5_000
"""The most sets of nodes."""
Element: TypeAlias = int
"""A node of the normal form; or a number up to HELD for a list or an object in an `enum` or `const`."""
HELD = -1_000
"""Below the numbers of all nodes, of which a normal form may have a few negative ones."""


def unique_spots(shapes: NormalForm) -> Spots | None:
    """The spots of a schema, None if forbidding equal strings is not enough to enforce `uniqueItems`: the items of some
    such array are not unbounded strings, or the same text may also match an array that may repeat items. (Arrays that
    the grammar itself keeps unique do not matter.)
    """
    return _ArraySearch(shapes).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedItems:
    """What a matcher needs to forbid equal items of any kind. narrowed: JSON pointers of arrays whose items must differ
    although another option of the schema would let equal ones be. is_easy: see `unique/matcher.py`."""

    spots: Spots
    narrowed: tuple[str, ...]
    is_easy: bool


def watched_items(shapes: NormalForm) -> WatchedItems | None:
    """As `unique_spots`, for items of every kind; None for a schema with too many sets of nodes."""
    search = _ArraySearch(shapes, any_kind=True)
    spots = search.run()
    if spots is None:
        return None
    return WatchedItems(spots=spots, narrowed=tuple(search.narrowed), is_easy=search.is_easy)


@dataclass(slots=True)
class _Inside:
    """The containers that a value may be. counted: objects whose undeclared names are counted."""

    arrays: list[tuple[Array, NodeId]] = field(default_factory=list)
    objects: list[Object] = field(default_factory=list)
    counted: list[tuple[Object, NodeId]] = field(default_factory=list)
    lists: list[list[Any]] = field(default_factory=list)
    dicts: list[dict[str, Any]] = field(default_factory=list)


class _ArraySearch:
    """Explores the sets of nodes from a queue, without recursion."""

    def __init__(self, shapes: NormalForm, *, any_kind: bool = False) -> None:
        """any_kind: items of every kind are to be told apart, by a matcher that leads into no trap."""
        self._shapes = shapes
        self._any_kind = any_kind
        self.narrowed: dict[str, None] = {}
        self.is_easy = True
        self._number: dict[frozenset[Element], int] = {}
        self._sets: list[frozenset[Element]] = []
        self._held: list[Any] = []
        self._places: dict[Hashable, Element] = {}
        self._endless: dict[String, bool] = {}

    def run(self) -> Spots | None:
        self._spot([self._shapes.root])
        spots: list[Spot] = []
        for elements in self._sets:  # grows as sets are met
            check_time()
            inside = self._inside(elements)
            wanted = [(case, node) for case, node in inside.arrays if case.unique and not self._is_kept(case)]
            if len(self._sets) > MAX_SPOTS or (wanted and not self._any_kind and not self._can_watch(inside)):
                return None
            if inside.counted and not self._any_kind:
                return None
            if inside.counted:
                self.is_easy = self.is_easy and all(map(self._has_names, inside.objects))
            if wanted and self._may_repeat(inside):
                self.narrowed |= dict.fromkeys(self._shapes.pointer(node) for _, node in wanted)
            self.is_easy = self.is_easy and all(self._has_room(case) for case, _ in wanted)
            names: dict[str, None] = {}
            for shape in inside.objects:
                names |= dict.fromkeys(prop.name for prop in shape.properties)
            for value in inside.dicts:
                names |= dict.fromkeys(value)
            declared = [{prop.name: prop.node for prop in case.properties} for case in inside.objects]
            most = max([len(case.prefix) for case, _ in inside.arrays] + [len(value) for value in inside.lists] + [0])
            spots.append(
                Spot(
                    names={escaped(name).encode(): self._member(name, inside, declared) for name in names},
                    other=self._spot(group.node for case in inside.objects for group in case.rest),
                    items=tuple(self._item(i, inside) for i in range(most + 1)),
                    unique=bool(wanted),
                    names_differ=bool(inside.counted),
                    pointer=self._shapes.pointer([*wanted, *inside.counted][0][1]) if wanted or inside.counted else "",
                    plain=all(_is_plain(string) for case, _ in wanted for string in self._strings(case)),
                    fresh=tuple(self._is_fresh(i, inside) for i in range(most + 1)) if wanted else (),
                    listed=tuple(self._listed_texts(i, inside) for i in range(most + 1)) if wanted else (),
                )
            )
        return tuple(spots)

    def _spot(self, elements: Iterable[Element]) -> int:
        some = frozenset(element for element in elements if element <= HELD or self._cases(element))
        number = self._number.get(some)
        if number is None:
            number = self._number[some] = len(self._sets)
            self._sets.append(some)
        return number

    def _cases(self, node: NodeId) -> tuple[Case, ...]:
        return () if node == self._shapes.false else self._shapes.cases(node)

    def _hold(self, value: Any) -> list[Element]:
        if not isinstance(value, list | dict):
            return []
        which = key(value)
        if which not in self._places:
            self._held.append(value)
            self._places[which] = HELD - len(self._held) + 1
        return [self._places[which]]

    def _inside(self, elements: Iterable[Element]) -> _Inside:
        inside = _Inside()
        values = [self._held[HELD - element] for element in elements if element <= HELD]
        for node in sorted(element for element in elements if element > HELD):
            for case in self._cases(node):
                if isinstance(case, Array):
                    inside.arrays.append((case, node))
                elif isinstance(case, Object):
                    inside.objects.append(case)
                    if _counts_names(case):
                        inside.counted.append((case, node))
                elif isinstance(case, Values):
                    values += case.values
        inside.lists = [value for value in values if isinstance(value, list)]
        inside.dicts = [value for value in values if isinstance(value, dict)]
        return inside

    def _member(self, name: str, inside: _Inside, declared: list[dict[str, NodeId]]) -> int:
        elements: list[Element] = []
        for case, own in zip(inside.objects, declared, strict=True):
            elements += [own[name]] if name in own else [group.node for group in case.rest]
        for value in inside.dicts:
            elements += self._hold(value[name]) if name in value else []
        return self._spot(elements)

    def _item(self, place: int, inside: _Inside) -> int:
        elements: list[Element] = []
        for case, _ in inside.arrays:
            elements.append(case.prefix[place] if place < len(case.prefix) else case.items)
            elements += [kind.node for kind in case.kinds[min(place, len(case.prefix))]] if case.kinds else []
        for value in inside.lists:
            elements += self._hold(value[place]) if place < len(value) else []
        return self._spot(elements)

    # Arrays

    def _can_watch(self, inside: _Inside) -> bool:
        """Whether forbidding equal strings is correct for every node that the value may match, without dead ends."""
        for case, _ in inside.arrays:
            if case.unique and not self._is_kept(case):
                if case.contains or not all(map(self._is_endless, self._strings(case))):
                    return False
            elif not case.unique and sum(map(self._may_be_string, self._places_of(case))) > 1:
                return False
        for value in inside.lists:
            texts = [item for item in value if isinstance(item, str)]
            if len(set(texts)) < len(texts):
                return False
        return True

    def _may_repeat(self, inside: _Inside) -> bool:
        """Whether some array that the value may be may repeat an item."""
        if any(not case.unique and len(self._places_of(case)) > 1 for case, _ in inside.arrays):
            return True
        return any(len({key(item) for item in value}) < len(value) for value in inside.lists)

    def _has_room(self, case: Array) -> bool:
        """Whether an array can be completed from its start whatever its items are: it needs at most one, or always
        completes."""
        needs_one = (
            case.min_items <= 1
            and not (case.contains and case.prefix)
            and sum(contains.least for contains in case.contains) <= 1
        )
        return needs_one or self._always_completes(case, 0)

    def _is_fresh(self, place: int, inside: _Inside) -> bool:
        """Whether every array that the value may be always completes from the item at this place on. (Then it also
        differs from arrays beside it.)"""
        return not inside.lists and all(self._always_completes(case, place) for case, _ in inside.arrays)

    def _listed_texts(self, place: int, inside: _Inside) -> tuple[bytes, ...]:
        """The texts of the values that the schema lists for an item at this place, some of them where they are many:
        an array that needs several of them is completed with these."""
        if self._is_fresh(place, inside):
            return ()
        nodes: dict[NodeId, None] = {}
        for case, _ in inside.arrays:
            row = case.kinds[min(place, len(case.prefix))] if case.kinds else ()
            item = case.prefix[place] if place < len(case.prefix) else case.items
            nodes |= dict.fromkeys([kind.node for kind in row] or [item])
        values: list[Any] = []
        for shape in [case for node in nodes for case in self._cases(node)]:
            values += shape.values if isinstance(shape, Values) else []
            values += [False, True] if isinstance(shape, Boolean) else []
        spelled = [literal(value, layout("compact"), 0) for value in values[:MAX_LISTED]]
        return tuple(dict.fromkeys(node.text.encode() for node in spelled if isinstance(node, Literal)))

    def _always_completes(self, case: Array, place: int) -> bool:
        """Whether an array that is about to begin the item at this place has numbers or strings without end to choose
        from for all items that it still needs, whatever those before are."""
        high = self._most(case)
        if (high is not None and high <= place) or (case.contains and not case.kinds):
            return False
        if not case.kinds:
            nodes = [*case.prefix, case.items]
            return all(map(self._has_endless_kind, nodes[place : max(case.min_items, place + 1)] or nodes[-1:]))
        rows = case.kinds[min(place, len(case.prefix)) :]
        endless = [[kind for kind in row if self._has_endless_kind(kind.node)] for row in rows]
        if all(map(len, rows)) and [list(row) for row in rows] == endless:
            return True  # whatever kinds complete it, each has an item that differs
        if high is not None or any(contains.most is not None for contains in case.contains):
            return False
        needed = [1 << i for i, contains in enumerate(case.contains) if contains.least]
        return all(endless) and all(any(kind.matches & bit for kind in endless[-1]) for bit in needed)

    def _has_endless_kind(self, node: NodeId) -> bool:
        return any(map(_is_endless_kind, self._cases(node)))

    def _places_of(self, case: Array) -> list[NodeId]:
        """The nodes of its items; a node that any number of items may match is listed twice."""
        high = self._most(case)
        nodes = [*case.prefix, case.items, case.items]
        return [node for node in (nodes if high is None else nodes[:high]) if self._cases(node)]

    def _most(self, case: Array) -> int | None:
        nodes = [*case.prefix, case.items]
        never = next((i for i, node in enumerate(nodes) if not self._cases(node)), None)
        return min((most for most in (never, case.max_items) if most is not None), default=None)

    def _is_kept(self, case: Array) -> bool:
        """Whether the grammar itself keeps the items unique, see `schema/lowering/arrays.py`."""
        high = self._most(case)
        if high is not None and high <= 1:
            return True
        if case.contains:
            return False
        distinct: set[Hashable] = set()
        for node in (*case.prefix, case.items):
            for shape in self._cases(node):
                match shape:
                    case Values(values=values) if len(values) <= MAX_UNIQUE:
                        distinct |= set(map(key, values))
                    case Null():
                        distinct.add(key(None))
                    case Boolean():
                        distinct |= {key(False), key(True)}
                    case _:
                        return False
        return len(distinct) <= MAX_UNIQUE

    def _strings(self, case: Array) -> list[Case]:
        """The cases of the items."""
        return [case for node in dict.fromkeys(self._places_of(case)) for case in self._cases(node)]

    def _is_endless(self, case: Case) -> bool:
        """Whether every open string can be continued without bound."""
        if not isinstance(case, String) or case.max_length is not None:
            return False
        if _is_plain(case):
            return True
        if case not in self._endless:
            book = RuleBook()
            language = StringRules(book).language(case, "pattern", "")
            self._endless[case] = not book.gaps and language is not None and _goes_on(language)
        return self._endless[case]

    def _has_names(self, case: Object) -> bool:
        """Whether there are plainly more undeclared names than any text holds."""
        endless = [
            not group.patterns and group.names is None and self._is_endless(String(not_patterns=group.not_patterns))
            for group in case.rest
        ]
        return any(endless) and all(
            is_endless or not group.meets for is_endless, group in zip(endless, case.rest, strict=True)
        )

    def _may_be_string(self, node: NodeId) -> bool:
        return any(
            isinstance(case, String)
            or (isinstance(case, Values) and any(isinstance(value, str) for value in case.values))
            for case in self._cases(node)
        )


def _counts_names(case: Object) -> bool:
    """Whether `minProperties` or a demand may need undeclared names that differ, see `ObjectRules.low`, `undone`."""
    required = sum(prop.required for prop in case.properties)
    return (bool(case.rest) and case.min_properties - required > 1) or any(undone(case))


def _is_endless_kind(case: Case) -> bool:
    """Whether there are plainly more values than any text holds."""
    if isinstance(case, NumberForm):
        return (case.minimum is None or case.maximum is None) and not case.multiples
    return _is_plain(case) and isinstance(case, String) and case.max_length is None


def _is_plain(case: Case) -> bool:
    return isinstance(case, String) and not (case.patterns or case.not_patterns or case.formats)


def _goes_on(dfa: Dfa) -> bool:
    """Whether every co-reachable state has a co-reachable successor: then every text has a longer one."""
    edges = [np.unique(row[row >= 0]) for row in dfa.table]
    before: list[list[int]] = [[] for _ in edges]
    for state, after in enumerate(edges):
        for target in after.tolist():
            before[target].append(state)
    todo = np.flatnonzero(dfa.accepting).tolist()
    live = set(todo)
    while todo:
        check_time()
        for state in before[todo.pop()]:
            if state not in live:
                live.add(state)
                todo.append(state)
    return all(not live.isdisjoint(edges[state].tolist()) for state in live)

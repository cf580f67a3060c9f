"""Checks documents against a compiled schema: whether each one can be generated, and if not, the first refused byte and
the reason.

A document is checked by its value: it is written anew, with its keys in the schema's order. It knows no engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.spec import JsonSchema
from espalier.constraints.verdict import judge
from espalier.errors import EspalierError, InputError, TooLarge
from espalier.files.json_shape import check_shape
from espalier.files.limits import INSTANCES
from espalier.json_record import JsonRecord, in_json
from espalier.schema.form import Array, NodeId, NormalForm, Object, Values

SHOWN = 40
"""Characters before a refused byte that are shown."""
EFFORT = 60
"""The search for an accepted order of keys may write so many times the document's bytes."""
LEAST_EFFORT = 20_000
"""The bytes that it may write in addition."""
MAX_EXPONENT = 400
MAX_DOCUMENTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance(JsonRecord):
    """The result for one document.

    line: its line, from 1. accepted: whether the constraint can generate it. byte: the offset of the first refused byte
    in its spelling, or the spelling's length if the text ends too early; None if accepted. before: the end of the text
    before that byte. reason: why it is refused. pointer: the place in the schema that expected something else. valid:
    the verdict of `jsonschema`, None if it has none; errors: its errors.
    """

    line: int
    accepted: bool
    byte: int | None = None
    before: str = ""
    reason: str = ""
    pointer: str | None = None
    valid: bool | None = None
    errors: tuple[str, ...] = ()

    @property
    @in_json()
    def disputed(self) -> bool:
        """Whether the constraint and the validator disagree."""
        return self.valid is not None and self.valid is not self.accepted


class Literally(str):
    """A number in its original spelling."""

    __slots__ = ()


def read_instances(text: str, source: str) -> list[tuple[int, str]]:
    """The non-empty lines of a JSON lines text, each with its number. Raises InputError naming the line,
    TooLarge."""
    documents: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            check_shape(line, INSTANCES, f"{source}, line {number}")
            if len(documents) >= MAX_DOCUMENTS:
                raise TooLarge(f"{source} has more than {MAX_DOCUMENTS:,} documents", field="instances")
            parsed(line, f"{source}, line {number}")
            documents.append((number, line.strip()))
    return documents


def parsed(text: str, source: str) -> Any:
    """The value of a JSON text, numbers in their original spelling. Raises InputError for invalid JSON or a duplicate
    key."""
    try:
        return json.loads(
            text, parse_int=Literally, parse_float=Literally, parse_constant=_no_constant, object_pairs_hook=_object
        )
    except json.JSONDecodeError as error:
        raise InputError(f"{source}: not JSON: {error.msg}, column {error.colno}", field="instances") from error
    except RecursionError as error:
        raise InputError(f"{source}: nested too deeply", field="instances") from error
    except ValueError as error:
        raise InputError(f"{source}: {error}", field="instances") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return members


def check_instances(
    spec: JsonSchema, compiled: Compiled, shapes: NormalForm, marks: tuple[str, str], lines: Iterable[tuple[int, str]]
) -> Iterator[Instance]:
    """The result for each document. compiled: the schema over the byte vocabulary. shapes: its normal form, for the
    order of keys. marks: the item and key separators. Raises InputError for a line that is not JSON."""
    for number, text in lines:
        value = parsed(text, f"line {number}")
        verdict = judge(spec, text)
        writer = Writer(compiled.matcher(), shapes, marks, spec, effort=LEAST_EFFORT + EFFORT * len(text.encode()))
        try:
            refused = writer.write(value)
        except RecursionError as error:
            raise InputError(f"line {number}: nested too deeply", field="instances") from error
        fields = {} if refused is None else refused.fields()
        yield Instance(line=number, accepted=refused is None, valid=verdict.valid, errors=verdict.errors, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRefusal:
    """byte: the offset of the first refused byte. before: all bytes written before it. note: added to the reason."""

    byte: int
    before: bytes
    blame: Blame | None
    note: str = ""

    def fields(self) -> dict[str, Any]:
        """The fields of an `Instance` that describe the refusal."""
        before = self.before[-4 * SHOWN :].decode("utf-8", "ignore")
        blame = self.blame
        parts = [self.note]
        if blame is not None:
            known = blame.expected is None or blame.expected in blame.reason
            parts += [blame.reason, "" if known else f"expected {blame.expected}"]
        shown = f"…{before[-SHOWN:]}" if len(before) > SHOWN else before
        reason = ", ".join(part for part in parts if part)
        pointer = blame.rule if blame is not None else None
        return {"byte": self.byte, "before": shown, "reason": reason, "pointer": pointer}


class _RefusedSpelling(Exception):
    """This spelling is refused."""


class _OutOfEffort(Exception):
    """Too many spellings were tried."""


class Writer:
    """Writes one value through a matcher. Several orders of keys and spellings of numbers are tried in turn; the
    refusal reported is the one that came furthest."""

    def __init__(
        self, matcher: Matcher, shapes: NormalForm, marks: tuple[str, str], spec: JsonSchema, *, effort: int
    ) -> None:
        self._matcher = matcher
        self._shapes = shapes
        self._comma, self._colon = marks
        self._indent = spec.indent if spec.whitespace == "indented" and spec.separators is None else None
        self._effort = effort
        self._out = bytearray()
        self._furthest: ByteRefusal | None = None

    def write(self, value: Any) -> ByteRefusal | None:
        """None if the value was accepted, otherwise the refusal. Raises RecursionError."""
        try:
            self._value(value, frozenset([self._shapes.root]), (), 0)
        except (_RefusedSpelling, _OutOfEffort) as error:
            assert self._furthest is not None
            note = "not every order of the keys was tried" if isinstance(error, _OutOfEffort) else ""
            return replace(self._furthest, note=note)
        if self._matcher.is_accepting:
            return None
        return ByteRefusal(
            byte=len(self._out),
            before=bytes(self._out),
            blame=self._blame(256),  # the byte vocabulary's EOS
        )

    def _value(self, value: Any, nodes: frozenset[NodeId], models: Sequence[Any], depth: int) -> None:
        if isinstance(value, Literally):
            self._first_of([lambda text=text: self._put(text) for text in numerals(value)])  # type: ignore[misc]
        elif isinstance(value, dict):
            models = (*models, *self._listed_values(nodes))
            wanted = self._orders(value, nodes, models)
            self._first_of([lambda names=names: self._object(value, names, nodes, models, depth) for names in wanted])  # type: ignore[misc]
        elif isinstance(value, list):
            self._array(value, nodes, (*models, *self._listed_values(nodes)), depth)
        else:
            self._put(json.dumps(value, ensure_ascii=False))

    def _object(
        self, value: dict[str, Any], names: Sequence[str], nodes: frozenset[NodeId], models: Sequence[Any], depth: int
    ) -> None:
        self._put("{")
        for i, name in enumerate(names):
            self._put(self._comma * (i > 0) + self._line(depth + 1) + json.dumps(name, ensure_ascii=False))
            self._put(self._colon)
            inner = [model[name] for model in models if isinstance(model, dict) and name in model]
            self._value(value[name], self._member_nodes(nodes, name), inner, depth + 1)
        self._put((self._line(depth) if names else "") + "}")

    def _array(self, value: list[Any], nodes: frozenset[NodeId], models: Sequence[Any], depth: int) -> None:
        self._put("[")
        for i, item in enumerate(value):
            self._put(self._comma * (i > 0) + self._line(depth + 1))
            inner = [model[i] for model in models if isinstance(model, list) and i < len(model)]
            self._value(item, self._items(nodes, i), inner, depth + 1)
        self._put((self._line(depth) if value else "") + "]")

    def _line(self, depth: int) -> str:
        return "" if self._indent is None else "\n" + " " * (self._indent * depth)

    # From the normal form

    def _listed_values(self, nodes: frozenset[NodeId]) -> list[Any]:
        """The listed values (`enum`, `const`) of these nodes."""
        cases = (case for node in sorted(nodes) for case in self._shapes.cases(node))
        return [value for case in cases if isinstance(case, Values) for value in case.values]

    def _orders(self, value: dict[str, Any], nodes: frozenset[NodeId], models: Sequence[Any]) -> list[tuple[str, ...]]:
        """The distinct orders in which to try the keys; the document's own order is last."""
        orders: dict[tuple[str, ...], None] = {}
        for node in sorted(nodes):
            for case in self._shapes.cases(node):
                if isinstance(case, Object):
                    rank = {prop.name: i for i, prop in enumerate(case.properties)}
                    orders[tuple(sorted(value, key=lambda name: rank.get(name, len(rank))))] = None
        for model in models:
            if isinstance(model, dict) and model.keys() == value.keys():
                orders[tuple(model)] = None
        orders[tuple(value)] = None
        return list(orders)

    def _member_nodes(self, nodes: frozenset[NodeId], name: str) -> frozenset[NodeId]:
        named: set[NodeId] = set()
        for node in nodes:
            for case in self._shapes.cases(node):
                if isinstance(case, Object):
                    declared = [prop.node for prop in case.properties if prop.name == name]
                    named.update(declared or [group.node for group in case.rest])
        return frozenset(named)

    def _items(self, nodes: frozenset[NodeId], place: int) -> frozenset[NodeId]:
        items: set[NodeId] = set()
        for node in nodes:
            for case in self._shapes.cases(node):
                if isinstance(case, Array):
                    items.add(case.prefix[place] if place < len(case.prefix) else case.items)
                    items.update(kind.node for row in case.kinds for kind in row)
        return frozenset(items)

    # Through the matcher

    def _first_of(self, ways: Sequence[Callable[[], None]]) -> None:
        """Run the alternatives until one is accepted; each refused one is rolled back. Raises _RefusedSpelling if none
        is."""
        mark = len(self._out)
        for way in ways:
            try:
                way()
            except _RefusedSpelling:
                self._matcher.rollback(len(self._out) - mark)
                del self._out[mark:]
            else:
                return
        raise _RefusedSpelling

    def _put(self, text: str) -> None:
        # A lone surrogate has bytes too, which the matcher refuses.
        for byte in text.encode("utf-8", "surrogatepass"):
            self._effort -= 1
            if self._matcher.allows(byte):
                self._matcher.advance(byte)
                self._out.append(byte)
                continue
            if self._furthest is None or len(self._out) > self._furthest.byte:
                self._furthest = ByteRefusal(byte=len(self._out), before=bytes(self._out), blame=self._blame(byte))
            raise _RefusedSpelling if self._effort > 0 else _OutOfEffort

    def _blame(self, byte: int) -> Blame | None:
        try:
            return self._matcher.explain(byte)
        except EspalierError as error:
            return Blame(member="json_schema", reason=f"refused, for an unknown reason ({error.message})")


def numerals(number: str) -> list[str]:
    """The spellings of a number to try: its own, and without an exponent (and without a point if it is an integer)."""
    spellings = [str(number)]
    try:
        value = Decimal(number)
    except InvalidOperation:
        return spellings
    if not value.is_finite() or abs(value.adjusted()) > MAX_EXPONENT or len(number) > MAX_EXPONENT:
        return spellings
    plain = format(value, "f")
    if "." in plain:
        plain = plain.rstrip("0").rstrip(".")
    return list(dict.fromkeys([*spellings, "0" if value == 0 else plain]))

"""Schema documents: read from text, indexed once, and references between them resolved, never over a network.

Every place where a schema stands becomes a `Place`. What is checked is the shape of keywords, not what they mean.

`$schema` says the draft: 2020-12 where it is absent. A `$schema` that names a document of `documents` means the draft
which that document states; its vocabularies are not read, except that one it requires and that is not of the official
ones is refused. Any other `$schema` is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

from espalier.errors import SchemaError, UnsupportedError
from espalier.schema.pointers import DanglingPointer, below, is_pointer, trail
from espalier.schema.read.drafts import DRAFT2020, DRAFTS, LISTS, MAPS, ONE, Draft, is_number, misshapen
from espalier.time_limit import check as check_time

Schema: TypeAlias = "Mapping[str, Any] | bool"

MAX_DEPTH = 256
"""Steps of the longest JSON pointer to a schema, and levels of a value in `enum` or `const`."""
DEFINITIONS = ("$defs", "definitions")
MAX_DIGITS = 4000
"""Digits of a number, and the size of its exponent."""


class Place:
    """A schema inside a document. kids: the schemas in it, by keyword, as they stand there. order: of all places."""

    __slots__ = ("depth", "kids", "made", "ops", "order", "pointer", "resource", "schema")

    def __init__(self, schema: Any, pointer: str, resource: Resource, order: int, depth: int) -> None:
        self.schema = schema
        self.pointer = pointer
        self.resource = resource
        self.order = order
        self.depth = depth
        self.kids: dict[str, Any] = {}
        self.ops: Any = None
        """Kept by `normal/expand.py`."""
        self.made: dict[Any, Place] = {}
        """Places that the document does not have, made from this one."""

    def at(self, keyword: str = "") -> str:
        """The pointer of a keyword here, with the address of the document where it is not the main one."""
        pointer = below(self.pointer, keyword) if keyword else self.pointer
        return self.resource.document.shown + pointer


class Resource:
    """A document, or a part of one that has an address of its own."""

    __slots__ = ("anchors", "document", "draft", "dynamic", "outer", "recursive", "root", "uri")

    def __init__(self, uri: str, draft: Draft, document: Document) -> None:
        self.uri = uri
        self.draft = draft
        self.document = document
        self.root: Place
        self.anchors: dict[str, Place] = {}
        self.dynamic: dict[str, Place] = {}
        self.recursive = False
        self.outer = False
        """It is what a whole document was supplied as."""


class Document:
    """One JSON document. places: every schema in it by pointer."""

    __slots__ = ("contents", "places", "root", "shown")

    def __init__(self, contents: Any, shown: str) -> None:
        self.contents = contents
        self.shown = shown
        self.places: dict[str, Place] = {}
        self.root: Place


class Store:
    """The main document and those that it may refer to. Raises SchemaError and UnsupportedError, with pointers."""

    def __init__(self, schema: Any, documents: Mapping[str, Any] | None = None) -> None:
        self.supplied = {urldefrag(uri)[0]: document for uri, document in (documents or {}).items()}
        self.resources: dict[str, Resource] = {}
        self.keywords: set[str] = set()
        """Every keyword that occurs somewhere."""
        self.order = 0
        self.wanted: list[tuple[Place, str]] = []
        self.main = self.add(schema, "", "")
        while self.wanted:
            check_time()
            place, uri = self.wanted.pop()
            if uri not in self.resources and (found := self.fetch(uri)) is not None:
                self.add(found, uri, f"{uri}#", place)

    def add(self, contents: Any, uri: str, shown: str, source: Place | None = None) -> Document:
        document = Document(contents, shown)
        draft = source.resource.draft if source else DRAFT2020
        resource = Resource(uri, self.draft(contents, draft), document)
        self.resources[uri] = resource
        resource.outer = bool(uri)
        document.root = self.scan(document, contents, "", resource, 0)
        resource.root = document.root
        return document

    def fetch(self, uri: str) -> Any:
        """A supplied document or an official metaschema, None if there is neither."""
        if uri in self.supplied:
            return self.supplied[uri]
        return _official(uri)

    def draft(self, schema: Any, default: Draft) -> Draft:
        stated = schema.get("$schema") if isinstance(schema, dict) else None
        if stated is None:
            return default
        if not isinstance(stated, str):
            raise SchemaError("`$schema` is not a string", pointer="/$schema")
        seen: set[str] = set()
        uri = urldefrag(stated)[0]
        while uri not in DRAFTS:
            check_time()
            metaschema = self.supplied.get(uri)
            if uri in seen or not isinstance(metaschema, dict) or not isinstance(metaschema.get("$schema"), str):
                known = ", ".join(draft.name for draft in DRAFTS.values())
                raise UnsupportedError(f"the $schema {stated!r} is not known", hint=f"known: {known}", field="schema")
            seen.add(uri)
            for name, needed in (metaschema.get("$vocabulary") or {}).items():
                if needed and not name.startswith("https://json-schema.org/draft/"):
                    raise UnsupportedError(f"the $schema {stated!r} requires the vocabulary {name!r}", field="schema")
            uri = urldefrag(metaschema["$schema"])[0]
        return DRAFTS[uri]

    # Indexing

    def scan(self, document: Document, schema: Any, pointer: str, resource: Resource, depth: int) -> Place:
        """Every schema at and below a place. Iterative: what is nested has no bearing on the stack."""
        root = self.place(document, schema, pointer, resource, depth)
        stack = [root]
        while stack:
            check_time()
            place = stack.pop()
            if isinstance(place.schema, dict):
                found: list[Place] = []
                for keyword, value in place.schema.items():
                    self.keyword(document, place, keyword, value, found)
                stack.extend(reversed(found))
        return root

    def place(self, document: Document, schema: Any, pointer: str, resource: Resource, depth: int) -> Place:
        if not isinstance(schema, dict | bool):
            raise SchemaError("this is not a schema (an object, true or false)", pointer=f"{document.shown}{pointer}")
        if depth > MAX_DEPTH:
            raise SchemaError(f"the schema is nested too deeply: {MAX_DEPTH} steps at most")
        if schema is not True and schema is not False:
            self.keywords.update(schema)
            if pointer and "$schema" in schema and resource.draft.id_keyword in schema:
                resource = self.embedded(schema, resource, document, self.draft(schema, resource.draft))
            elif isinstance(stated := schema.get(resource.draft.id_keyword, ""), str):
                if stated:
                    resource = self.embedded(schema, resource, document, resource.draft)
            elif resource.draft.id_keyword == "$id" and not (resource.draft.ref_alone and "$ref" in schema):
                # An `id` of draft 4 that is no string is a property out of its place, which people do write.
                at = f"{document.shown}{pointer}/{resource.draft.id_keyword}"
                raise SchemaError("an address of a schema is a string", pointer=at)
        place = Place(schema, pointer, resource, self.order, depth)
        self.order += 1
        document.places[pointer] = place
        if not hasattr(resource, "root"):
            resource.root = place
        if schema is not True and schema is not False:
            self.anchors(place, schema)
        return place

    def embedded(self, schema: Any, resource: Resource, document: Document, draft: Draft) -> Resource:
        stated = schema.get(draft.id_keyword)
        if not isinstance(stated, str) or (draft.ref_alone and "$ref" in schema):
            return resource
        uri, fragment = urldefrag(urljoin(resource.uri, stated))
        if (fragment and draft.ref_alone and not urldefrag(stated)[0]) or uri == resource.uri:
            return resource
        new = Resource(uri, draft, document)
        self.resources.setdefault(uri, new)
        return new

    def anchors(self, place: Place, schema: Mapping[str, Any]) -> None:
        resource, draft = place.resource, place.resource.draft
        if draft.ref_alone:
            stated = schema.get(draft.id_keyword)
            if isinstance(stated, str) and "#" in stated and "$ref" not in schema:
                resource.anchors.setdefault(urldefrag(stated)[1], place)
            return
        if isinstance(name := schema.get("$anchor"), str):
            resource.anchors.setdefault(name, place)
        if draft is DRAFT2020 and isinstance(name := schema.get("$dynamicAnchor"), str):
            resource.anchors.setdefault(name, place)
            resource.dynamic.setdefault(name, place)
        if schema.get("$recursiveAnchor") is True and resource.root is place:
            resource.recursive = True

    def keyword(self, document: Document, place: Place, keyword: str, value: Any, found: list[Place]) -> None:
        draft = place.resource.draft
        if keyword not in draft.keywords and keyword not in DEFINITIONS:
            return
        if problem := misshapen(draft, keyword, value):
            raise SchemaError(f"the value of `{keyword}` {problem}", pointer=place.at(keyword))
        if keyword in ("enum", "const"):
            check_values(value, place.at(keyword))
        elif keyword in ("$ref", "$dynamicRef") and value[:1] != "#":
            uri = urldefrag(urljoin(place.resource.uri, value))[0]
            if uri not in self.resources:
                self.wanted.append((place, uri))
        inner = SCHEMAS_IN.get(keyword)
        if inner is None or (draft.ref_alone and "$ref" in place.schema and keyword not in DEFINITIONS):
            return
        for key, schema in inner(value):
            steps = (keyword, *key)
            pointer = below(place.pointer, *steps)
            kid = self.place(document, schema, pointer, place.resource, place.depth + len(steps))
            found.append(kid)
            if not key:
                place.kids[keyword] = kid
            else:
                place.kids.setdefault(keyword, {})[key[0]] = kid

    # References

    def resolve(self, place: Place, reference: str, keyword: str) -> tuple[Place, str]:
        """The schema that a reference leads to, and the fragment that led there. Raises SchemaError for nothing,
        UnsupportedError for a document that was not supplied."""
        if reference[:1] == "#":
            uri, fragment = "", reference[1:]
        else:
            uri, fragment = urldefrag(urljoin(place.resource.uri, reference))
        resource = self.resources.get(uri) if uri else place.resource
        if resource is None:
            raise UnsupportedError(
                f"the reference {reference!r} at {place.at(keyword)} leads to another document, and nothing is fetched",
                hint="supply it in `documents`, or put it in $defs",
                field="schema",
            )
        fragment = unquote(fragment)
        found = self.inside(resource, fragment)
        if found is None:
            raise SchemaError(f"the reference {reference!r} leads to nothing", pointer=place.at(keyword))
        return found, fragment

    def inside(self, resource: Resource, fragment: str) -> Place | None:
        if not fragment:
            return resource.root
        if not is_pointer(fragment):
            return resource.anchors.get(fragment)
        document = resource.document
        if (place := document.places.get(resource.root.pointer + fragment)) is not None:
            return place
        try:
            steps = [(resource.root.pointer + inner, value) for inner, value in trail(resource.root.schema, fragment)]
        except DanglingPointer:
            return None
        pointer, schema = steps[-1]
        if pointer not in document.places:
            known = [document.places[passed].resource for passed, _ in steps if passed in document.places]
            self.scan(document, schema, pointer, (known or [resource])[-1], resource.root.depth + len(steps))
        return document.places[pointer]


@cache
def _official(uri: str) -> Any:
    registry: Any = import_module("jsonschema_specifications").REGISTRY  # needed by schemas of schemas only

    resource = registry.get(uri) or registry.get(f"{uri}#")
    return None if resource is None else resource.contents


def _one(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    yield (), value


def _listed(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for i, schema in enumerate(value):
        yield (i,), schema


def _mapped(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for name, schema in value.items():
        yield (name,), schema


def _items(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    return _listed(value) if isinstance(value, list) else _one(value)


def _dependencies(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for name, schema in value.items():
        if not isinstance(schema, list):
            yield (name,), schema


SCHEMAS_IN = (
    dict.fromkeys(ONE, _one)
    | dict.fromkeys(LISTS, _listed)
    | dict.fromkeys(MAPS, _mapped)
    | {"items": _items, "dependencies": _dependencies}
)
"""Where schemas stand in the value of a keyword: `(key, schema)`, the key empty for the value itself."""


def check_values(value: Any, pointer: str) -> None:
    """A JSON value, numbers finite, not nested too deeply. Raises SchemaError."""
    stack = [(value, 0)]
    while stack:
        check_time()
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise SchemaError(f"a value is nested too deeply: {MAX_DEPTH} levels at most", pointer=pointer)
        if isinstance(node, list):
            stack.extend([(item, depth + 1) for item in node if type(item) is not str])
        elif isinstance(node, dict):
            stack.extend((item, depth + 1) for item in node.values())
        elif not (node is None or isinstance(node, str | bool) or is_number(node)):
            raise SchemaError("this is not a JSON value", pointer=pointer)


def parse_schema(text: str | bytes) -> Any:
    """A schema document from JSON text. Numbers that a float would change are Decimal.

    Raises SchemaError for what is not JSON, for NaN and infinities, for a name that comes twice in an object, for
    numbers beyond MAX_DIGITS and for text that is nested too deeply.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_integer
        )
    except RecursionError:
        raise SchemaError("the schema is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise SchemaError(f"the name {twice!r} comes twice in one object")
    return found


def _constant(name: str) -> Any:
    raise SchemaError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise SchemaError(f"a number of {len(digits)} digits: {MAX_DIGITS} at most")
    return int(digits)


def _float(digits: str) -> float | Decimal:
    exact = Decimal(digits) if len(digits) <= MAX_DIGITS else Decimal("inf")
    if not exact.is_finite() or abs(exact.adjusted()) > MAX_DIGITS:
        raise SchemaError(f"the number {digits[:40]} is out of range: {MAX_DIGITS} digits at most")
    near = float(digits)
    return near if Decimal(repr(near)) == exact else exact

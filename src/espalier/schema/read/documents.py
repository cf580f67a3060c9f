"""Indexes schema documents: every schema in them becomes a `Subschema`, and references between documents are resolved.

    SchemaStore({"$defs": {"a": {"type": "null"}}, "$ref": "#/$defs/a"}).main.subschemas      "" and "/$defs/a"

It checks the shape of keyword values, not their meaning, and never uses the network.

`$schema` selects the draft, 2020-12 by default. A `$schema` may name a document of `documents`: the draft is then the
one which that document states. Vocabularies are ignored, except that a required one that is not official is refused.
Any other `$schema` is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

from espalier.errors import SchemaError, UnsupportedError
from espalier.schema.pointers import DanglingPointer, below, is_pointer, trail
from espalier.schema.read.drafts import DRAFT2020, DRAFTS, LISTS, MAPS, ONE, SchemaDraft, misshapen
from espalier.schema.read.unknown import hint_for
from espalier.schema.read.values import check_values
from espalier.time_limit import check as check_time

Schema: TypeAlias = "Mapping[str, Any] | bool"

MAX_DEPTH = 256
"""Steps of the longest JSON pointer to a schema."""
DEFINITIONS = ("$defs", "definitions")
ANCHORS = frozenset(("$anchor", "$dynamicAnchor", "$recursiveAnchor", "$id", "id"))
"""Keywords that may name the schema in which they stand."""


class Subschema:
    """One schema inside a document: what is written there, where it stands, and the schemas directly inside it.

    value: the object, true or false, as written. order: its position among all subschemas, in the order of the text.
    kids: the subschemas in it by keyword: one, or a dict by name or index where the keyword holds several:
    `{"not": s, "anyOf": {0: s, 1: s}, "properties": {"name": s}}`.
    """

    __slots__ = ("depth", "derived", "kids", "ops", "order", "pointer", "resource", "value")

    def __init__(self, value: Any, pointer: str, resource: Resource, order: int, depth: int) -> None:
        self.value = value
        self.pointer = pointer
        self.resource = resource
        self.order = order
        self.depth = depth
        self.kids: dict[str, Any] = {}
        self.ops: Any = None
        """The operations of this schema (`normal/operations.py`), once they were read."""
        self.derived: dict[Any, Subschema] = {}

    def at(self, keyword: str = "") -> str:
        """The pointer of a keyword here, or of the schema; the document's address comes first unless it is the main
        document."""
        pointer = below(self.pointer, keyword) if keyword else self.pointer
        return self.resource.document.shown + pointer

    def derive(self, key: Any, value: Any, kids: dict[str, Any] | None = None) -> Subschema:
        """A schema that the document does not have, with the pointer and draft of this one; made once for each key."""
        if key not in self.derived:
            derived = Subschema(value, self.pointer, self.resource, self.order, self.depth)
            derived.kids = kids or {}
            self.derived[key] = derived
        return self.derived[key]


class Resource:
    """A document, or a part of one with an address (`$id`) of its own.

    anchors: the targets of `$anchor`, by name. dynamic: those of `$dynamicAnchor`. recursive: `$recursiveAnchor` is
    true. outer: a whole document of `documents`, not the main one.
    """

    __slots__ = ("anchors", "document", "draft", "dynamic", "outer", "recursive", "root", "uri")

    def __init__(self, uri: str, draft: SchemaDraft, document: Document) -> None:
        self.uri = uri
        self.draft = draft
        self.document = document
        self.root: Subschema
        self.anchors: dict[str, Subschema] = {}
        self.dynamic: dict[str, Subschema] = {}
        self.recursive = False
        self.outer = False

    def forget(self) -> None:
        """Drop its subschemas and those of its document. Nothing may be asked for any more."""
        self.document.subschemas = {}
        self.anchors, self.dynamic = {}, {}
        if hasattr(self, "root"):
            del self.root


class Document:
    """One JSON document. subschemas: every schema in it by pointer. shown: what stands in front of a pointer in
    messages, the address and `#`; empty for the main document."""

    __slots__ = ("contents", "shown", "subschemas")

    def __init__(self, contents: Any, shown: str) -> None:
        self.contents = contents
        self.shown = shown
        self.subschemas: dict[str, Subschema] = {}

    @property
    def root(self) -> Subschema:
        return self.subschemas[""]


class SchemaStore:
    """The main document and those that it may refer to, by address. Raises SchemaError and UnsupportedError, with
    pointers.

    supplied: the documents given by the user. keywords: every keyword that occurs somewhere. wanted: references to
    documents that are still to be loaded, each with the subschema that holds the reference. The documents can be asked
    while the store is held.
    """

    def __init__(self, schema: Any, documents: Mapping[str, Any] | None = None) -> None:
        self.resources: dict[str, Resource] = {}
        self.supplied = {_parts_of(uri)[0]: document for uri, document in (documents or {}).items()}
        self.keywords: set[str] = set()
        self.order = 0
        self.wanted: list[tuple[Subschema, str]] = []
        self.main = self.add(schema, "", "")
        while self.wanted:
            check_time()
            subschema, uri = self.wanted.pop()
            if uri not in self.resources and (contents := self.fetch(uri)) is not None:
                self.add(contents, uri, f"{uri}#", subschema)

    def __del__(self) -> None:
        """Break the cycles of documents and subschemas, so that they are free at once, see `LazyNetwork`."""
        for resource in self.resources.values():
            resource.forget()

    def add(self, contents: Any, uri: str, shown: str, source: Subschema | None = None) -> Document:
        document = Document(contents, shown)
        draft = source.resource.draft if source else DRAFT2020
        resource = Resource(uri, self.draft_of(contents, draft), document)
        self.resources[uri] = resource
        resource.outer = bool(uri)
        resource.root = self.scan(document, contents, "", resource, 0)
        return document

    def fetch(self, uri: str) -> Any:
        """A supplied document, or an official metaschema; None if there is neither."""
        if uri in self.supplied:
            return self.supplied[uri]
        return _official(uri)

    def draft_of(self, schema: Any, default: SchemaDraft) -> SchemaDraft:
        stated = schema.get("$schema") if isinstance(schema, dict) else None
        if stated is None:
            return default
        if not isinstance(stated, str):
            raise SchemaError("`$schema` is not a string", pointer="/$schema")
        seen: set[str] = set()
        uri = _parts_of(stated, "/$schema")[0]
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
            uri = _parts_of(metaschema["$schema"], "/$schema")[0]
        return DRAFTS[uri]

    # Indexing

    def scan(self, document: Document, schema: Any, pointer: str, resource: Resource, depth: int) -> Subschema:
        """Index every schema at and below this one. Iterative, so deep nesting cannot overflow the stack."""
        root = self.index(document, schema, pointer, resource, depth)
        stack = [root]
        while stack:
            check_time()
            subschema = stack.pop()
            if isinstance(subschema.value, dict):
                kids: list[Subschema] = []
                keywords = subschema.resource.draft.keywords
                for keyword, value in subschema.value.items():
                    if keyword in keywords or keyword in DEFINITIONS:
                        self.index_keyword(document, subschema, keyword, value, kids)
                stack.extend(reversed(kids))
        return root

    def index(self, document: Document, schema: Any, pointer: str, resource: Resource, depth: int) -> Subschema:
        if not isinstance(schema, dict | bool):
            raise SchemaError("this is not a schema (an object, true or false)", pointer=f"{document.shown}{pointer}")
        if depth > MAX_DEPTH:
            raise SchemaError(f"the schema is nested too deeply: {MAX_DEPTH} steps at most")
        if schema is not True and schema is not False:
            self.keywords.update(schema)
            if pointer and "$schema" in schema and resource.draft.id_keyword in schema:
                resource = self.resource_of(schema, pointer, resource, document, self.draft_of(schema, resource.draft))
            elif isinstance(stated := schema.get(resource.draft.id_keyword, ""), str):
                if stated:
                    resource = self.resource_of(schema, pointer, resource, document, resource.draft)
            elif resource.draft.id_keyword == "$id" and not (resource.draft.ref_alone and "$ref" in schema):
                # In draft 4 an `id` that is no string is a misplaced property, which people do write.
                at = f"{document.shown}{pointer}/{resource.draft.id_keyword}"
                raise SchemaError(f"`{resource.draft.id_keyword}` is not a string", pointer=at)
        subschema = Subschema(schema, pointer, resource, self.order, depth)
        self.order += 1
        document.subschemas[pointer] = subschema
        if not hasattr(resource, "root"):
            resource.root = subschema
        if schema is not True and schema is not False:
            self.index_anchors(subschema, schema)
        return subschema

    def resource_of(
        self, schema: Any, pointer: str, resource: Resource, document: Document, draft: SchemaDraft
    ) -> Resource:
        stated = schema.get(draft.id_keyword)
        if not isinstance(stated, str) or (draft.ref_alone and "$ref" in schema):
            return resource
        uri, fragment = _parts_of(stated, f"{document.shown}{pointer}/{draft.id_keyword}", base=resource.uri)
        if (fragment and draft.ref_alone and stated.startswith("#")) or uri == resource.uri:
            return resource
        new = Resource(uri, draft, document)
        self.resources.setdefault(uri, new)
        return new

    def index_anchors(self, subschema: Subschema, schema: Mapping[str, Any]) -> None:
        resource, draft = subschema.resource, subschema.resource.draft
        if ANCHORS.isdisjoint(schema):
            return
        if draft.ref_alone:
            stated = schema.get(draft.id_keyword)
            if isinstance(stated, str) and "#" in stated and "$ref" not in schema:
                resource.anchors.setdefault(stated.partition("#")[2], subschema)
            return
        if isinstance(name := schema.get("$anchor"), str):
            resource.anchors.setdefault(name, subschema)
        if draft is DRAFT2020 and isinstance(name := schema.get("$dynamicAnchor"), str):
            resource.anchors.setdefault(name, subschema)
            resource.dynamic.setdefault(name, subschema)
        if schema.get("$recursiveAnchor") is True and resource.root is subschema:
            resource.recursive = True

    def index_keyword(
        self, document: Document, subschema: Subschema, keyword: str, value: Any, kids: list[Subschema]
    ) -> None:
        draft = subschema.resource.draft
        if problem := misshapen(draft, keyword, value):
            raise SchemaError(
                f"the value of `{keyword}` {problem}", pointer=subschema.at(keyword), hint=hint_for(keyword, value)
            )
        if keyword in ("enum", "const"):
            check_values(value, subschema.at(keyword))
        elif keyword in ("$ref", "$dynamicRef") and value[:1] != "#":
            uri = _parts_of(value, subschema.at(keyword), base=subschema.resource.uri)[0]
            if uri not in self.resources:
                self.wanted.append((subschema, uri))
        inner = SCHEMAS_IN.get(keyword)
        if inner is None or (draft.ref_alone and "$ref" in subschema.value and keyword not in DEFINITIONS):
            return
        for key, schema in inner(value):
            steps = (keyword, *key)
            pointer = below(subschema.pointer, *steps)
            kid = self.index(document, schema, pointer, subschema.resource, subschema.depth + len(steps))
            kids.append(kid)
            if not key:
                subschema.kids[keyword] = kid
            else:
                subschema.kids.setdefault(keyword, {})[key[0]] = kid

    # References

    def resolve(self, subschema: Subschema, reference: str, keyword: str) -> tuple[Subschema, str]:
        """The target of a reference, and its fragment. Raises SchemaError if there is no such schema,
        UnsupportedError for a document that was not supplied."""
        if reference[:1] == "#":
            uri, fragment = "", reference[1:]
        else:
            uri, fragment = _parts_of(reference, subschema.at(keyword), base=subschema.resource.uri)
        resource = self.resources.get(uri) if uri else subschema.resource
        if resource is None:
            where = subschema.at(keyword)
            raise UnsupportedError(
                f"the reference {reference!r} at {where} leads to another document, and nothing is fetched",
                hint="supply it in `documents`, or put it in $defs",
                field="schema",
            )
        fragment = unquote(fragment)
        target = self.inside(resource, fragment)
        if target is None:
            raise SchemaError(f"the reference {reference!r} leads to nothing", pointer=subschema.at(keyword))
        return target, fragment

    def inside(self, resource: Resource, fragment: str) -> Subschema | None:
        """The schema at a pointer or anchor of a resource. A target that no keyword leads to (a schema under an unknown
        keyword) is indexed now."""
        if not fragment:
            return resource.root
        if not is_pointer(fragment):
            return resource.anchors.get(fragment)
        document = resource.document
        if (subschema := document.subschemas.get(resource.root.pointer + fragment)) is not None:
            return subschema
        try:
            steps = [(resource.root.pointer + inner, value) for inner, value in trail(resource.root.value, fragment)]
        except DanglingPointer:
            return None
        pointer, schema = steps[-1]
        if pointer not in document.subschemas:
            known = [document.subschemas[passed].resource for passed, _ in steps if passed in document.subschemas]
            self.scan(document, schema, pointer, (known or [resource])[-1], resource.root.depth + len(steps))
        return document.subschemas[pointer]


def _parts_of(address: str, pointer: str = "", *, base: str = "") -> tuple[str, str]:
    """An address without its fragment, and that. base: what it is relative to. Raises SchemaError with the pointer."""
    try:
        uri, fragment = urldefrag(urljoin(base, address))
    except ValueError as error:
        raise SchemaError(f"{address!r} is no address: {error}", pointer=pointer) from error
    return uri, fragment


@cache
def _official(uri: str) -> Any:
    registry: Any = import_module("jsonschema_specifications").REGISTRY  # only schemas of schemas need it
    resource = registry.get(uri) or registry.get(f"{uri}#")
    return None if resource is None else resource.contents


def _one(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    yield (), value


def _list_items(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for i, schema in enumerate(value):
        yield (i,), schema


def _list_members(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for name, schema in value.items():
        yield (name,), schema


def _items(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    return _list_items(value) if isinstance(value, list) else _one(value)


def _dependencies(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for name, schema in value.items():
        if not isinstance(schema, list):
            yield (name,), schema


SCHEMAS_IN = (
    dict.fromkeys(ONE, _one)
    | dict.fromkeys(LISTS, _list_items)
    | dict.fromkeys(MAPS, _list_members)
    | {"items": _items, "dependencies": _dependencies}
)
"""By keyword: the schemas in its value, each with its key below the keyword: `()`, `(0,)` or `("name",)`."""

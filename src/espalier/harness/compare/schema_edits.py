"""Edits of a schema that may lower its tax, from what a model wanted at its paths and did not get.

Each edit is a changed schema and, where it can say it, an RFC 6902 patch. Whether it helps is measured, not guessed
(`remedies.try_variants`). It reads no trace and runs nothing.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from espalier.schema.pointers import below, local_pointer, split

LEAST_WORD = 2
"""Letters of a token that is taken for a word."""
WORD = re.compile(r"[^\W\d_][\w-]*")
MOST_DEPTH = 50


class WantedAt(NamedTuple):
    """A token that the model wanted at a path, without indices, and the one that came. tax: nats of these steps."""

    path: str
    wanted: str
    taken: str
    tax: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaEdit:
    """One changed schema. patch: the same as operations of RFC 6902; None for an order of properties, which JSON Patch
    cannot say."""

    action: str
    about: str
    schema: Mapping[str, Any]
    patch: Sequence[Mapping[str, Any]] | None


Make = Callable[[Mapping[str, Any], WantedAt], SchemaEdit | None]


def schema_edits(schema: Mapping[str, Any], wanted: Sequence[WantedAt]) -> list[SchemaEdit]:
    """The edits that the wanted tokens speak for, those of the most tax first, each once."""
    edits: dict[str, SchemaEdit] = {}
    for place in sorted(wanted, key=lambda place: -place.tax):
        for make in MAKERS:
            edit = make(schema, place)
            if edit is not None:
                edits.setdefault(edit.about, edit)
    return list(edits.values())


def locate(schema: Any, path: str) -> list[str] | None:
    """The steps in a schema to the subschema of the values at a path of the document; None where `properties`, `items`
    and local references do not lead there."""
    steps: list[str] | None = []
    for step in [] if path in ("", "/") else split(path):
        steps = _resolved(schema, steps)
        node = None if steps is None else _at(schema, steps)
        if steps is None or not isinstance(node, Mapping):
            return None
        if step in (node.get("properties") or {}):
            steps = [*steps, "properties", step]
        elif step == "*" and isinstance(node.get("items"), Mapping):
            steps = [*steps, "items"]
        else:
            return None
    return _resolved(schema, steps)


def _resolved(schema: Any, steps: list[str] | None) -> list[str] | None:
    """Follows local references."""
    for _ in range(MOST_DEPTH):
        node = None if steps is None else _at(schema, steps)
        if not isinstance(node, Mapping) or "$ref" not in node:
            return steps
        pointer = local_pointer(node["$ref"])
        steps = None if pointer is None else split(pointer)
    return None


def _at(schema: Any, steps: Sequence[str]) -> Any:
    node = schema
    for step in steps:
        if isinstance(node, list):
            node = node[int(step)] if step.isdigit() and int(step) < len(node) else None
        else:
            node = node.get(step) if isinstance(node, Mapping) else None
    return node


def _word(token: str, least: int = LEAST_WORD) -> str | None:
    """A token's text as the beginning of a name or a value; None for marks, and for fewer letters."""
    word = token.strip(" \"':{,")
    return word if len(word) >= least and WORD.fullmatch(word) else None


def is_beginning(token: str) -> bool:
    """Whether a wanted token may be the beginning of a word only: nothing in it ends the word."""
    return _word(token) is not None and not token.rstrip().endswith(('"', ":", "'"))


def _edited(schema: Mapping[str, Any], steps: Sequence[str], change: Callable[[Any], None]) -> Mapping[str, Any]:
    own = copy.deepcopy(dict(schema))
    change(_at(own, steps))
    return own


def _add_value(schema: Mapping[str, Any], place: WantedAt) -> SchemaEdit | None:
    """The wanted value is added to an enum."""
    steps, word = locate(schema, place.path), _word(place.wanted)
    node = None if steps is None else _at(schema, steps)
    if steps is None or word is None or not isinstance(node, Mapping) or not isinstance(node.get("enum"), list):
        return None
    if any(isinstance(value, str) and value.startswith(word) for value in node["enum"]):
        return None
    return SchemaEdit(
        action="add_value",
        about=f"add {word!r} to the enum at {place.path}",
        schema=_edited(schema, steps, lambda own: own["enum"].append(word)),
        patch=[{"op": "add", "path": below("", *steps, "enum", "-"), "value": word}],
    )


def _object_at(schema: Mapping[str, Any], place: WantedAt) -> tuple[list[str], Mapping[str, Any], str] | None:
    """The object of a path, its properties, and the word that was wanted among its names."""
    steps, word = locate(schema, place.path), _word(place.wanted)
    node = None if steps is None else _at(schema, steps)
    properties = node.get("properties") if isinstance(node, Mapping) else None
    return None if steps is None or word is None or not isinstance(properties, Mapping) else (steps, properties, word)


def _rename(schema: Mapping[str, Any], place: WantedAt) -> SchemaEdit | None:
    """A property has the name that the model writes in its place."""
    found, taken = _object_at(schema, place), _word(place.taken, least=1)
    if found is None or taken is None:
        return None
    steps, properties, word = found
    names = [name for name in properties if name.startswith(taken)]
    if len(names) != 1 or any(name.startswith(word) for name in properties):
        return None
    old = names[0]
    required = list(_at(schema, steps).get("required") or ())

    def change(own: Any) -> None:
        own["properties"] = {word if name == old else name: value for name, value in own["properties"].items()}
        if "required" in own:
            own["required"] = [word if name == old else name for name in own["required"]]

    patch: list[Mapping[str, Any]] = [
        {"op": "move", "from": below("", *steps, "properties", old), "path": below("", *steps, "properties", word)}
    ]
    if old in required:
        patch.append({"op": "replace", "path": below("", *steps, "required", required.index(old)), "value": word})
    about = f"rename {old!r} to {word!r} at {place.path}"
    return SchemaEdit(action="rename", about=about, schema=_edited(schema, steps, change), patch=patch)


def _put_first(schema: Mapping[str, Any], place: WantedAt) -> SchemaEdit | None:
    """The property that the model wants earlier stands before the one that came."""
    found, taken = _object_at(schema, place), _word(place.taken, least=1)
    if found is None or taken is None:
        return None
    steps, properties, word = found
    names = list(properties)
    early = [name for name in names if name.startswith(word)]
    late = [name for name in names if name.startswith(taken)]
    if len(early) != 1 or len(late) != 1 or names.index(early[0]) <= names.index(late[0]):
        return None
    order = [name for name in names if name != early[0]]
    order.insert(order.index(late[0]), early[0])

    def change(own: Any) -> None:
        own["properties"] = {name: own["properties"][name] for name in order}

    about = f"put {early[0]!r} before {late[0]!r} at {place.path}"
    return SchemaEdit(action="reorder", about=about, schema=_edited(schema, steps, change), patch=None)


def _make_optional(schema: Mapping[str, Any], place: WantedAt) -> SchemaEdit | None:
    """A property may be left out where the model wants to end the object."""
    steps, taken = locate(schema, place.path), _word(place.taken, least=1)
    node = None if steps is None else _at(schema, steps)
    if steps is None or taken is None or not isinstance(node, Mapping) or "}" not in place.wanted:
        return None
    required = list(node.get("required") or ())
    names = [name for name in required if name.startswith(taken)]
    if len(names) != 1:
        return None
    return SchemaEdit(
        action="make_optional",
        about=f"make {names[0]!r} optional at {place.path}",
        schema=_edited(schema, steps, lambda own: own["required"].remove(names[0])),
        patch=[{"op": "remove", "path": below("", *steps, "required", required.index(names[0]))}],
    )


MAKERS: tuple[Make, ...] = (_add_value, _rename, _put_first, _make_optional)
"""What a wanted token may speak for."""


def patches(edits: Sequence[SchemaEdit]) -> Iterator[Mapping[str, Any]]:
    """Each edit as JSON: what it does, its patch, and the whole schema where no patch can say it."""
    for edit in edits:
        shown: dict[str, Any] = {"action": edit.action, "about": edit.about, "patch": edit.patch}
        yield shown if edit.patch is not None else shown | {"schema": edit.schema}

"""Schemas that are plain: what they say is enforced exactly, and how short a document of theirs can be is plain to see.

    plain_least({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})     8, as in {"a":""}

Most tools have such schemas, and looking one over takes a hundredth of the time that lowering it takes. What is not
surely plain is None here and lowered. It knows no texts and no layouts.
"""

from __future__ import annotations

from typing import Any

from espalier.schema.lowering.rulebook import quoted

MAX_PARTS = 500
"""The most sub-schemas; a schema with more is lowered, so that its limits are found before text is generated."""
MAX_LENGTH = 4_000
"""The largest length of a string."""
MAX_ITEMS = 200
"""The largest number of items."""
MAX_BOUND = 10**12
"""The largest bound of a number."""
MAX_DEPTH = 20
SCALARS = {"string": 2, "number": 1, "integer": 1, "boolean": 4, "null": 4}
"""The least number of bytes of a value, by its type."""
REMARKS = frozenset(("description", "title", "default"))
DIALECTS = ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema")


class _NotPlain(Exception):
    """The schema is not surely plain."""


def plain_least(schema: Any) -> int | None:
    """The least number of bytes of an object of this schema, without whitespace; None for a schema that is not plain,
    or that others than objects satisfy."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    top = {key: value for key, value in schema.items() if not (key == "$schema" and value in DIALECTS)}
    try:
        return _PlainCallReader().least(top, 0)
    except _NotPlain:
        return None


class _PlainCallReader:
    def __init__(self) -> None:
        self._parts = 0

    def least(self, schema: Any, depth: int) -> int:
        """The least number of bytes. Raises _NotPlain."""
        self._parts += 1
        if not isinstance(schema, dict) or self._parts > MAX_PARTS or depth > MAX_DEPTH:
            raise _NotPlain
        if not all(isinstance(schema.get(key, ""), str) for key in ("description", "title")):
            raise _NotPlain
        said = {key: value for key, value in schema.items() if key not in REMARKS}
        kind = said.pop("type", None)
        if "enum" in said:
            return _enum(said, kind)
        if isinstance(kind, list):
            return _several(said, kind)
        if not isinstance(kind, str):
            raise _NotPlain
        if kind == "object":
            return self._object(said, depth)
        if kind == "array":
            return self._array(said, depth)
        return _scalar(said, kind)

    def _object(self, said: dict[str, Any], depth: int) -> int:
        _only(said, "properties", "required", "additionalProperties")
        properties, required = said.get("properties", {}), said.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise _NotPlain
        if not isinstance(said.get("additionalProperties", True), bool):
            raise _NotPlain
        if not all(map(_is_word, properties)) or not all(isinstance(name, str) for name in required):
            raise _NotPlain
        if len(set(required)) < len(required) or not set(required) <= set(properties):
            raise _NotPlain
        costs = {name: len(quoted(name)) + 1 + self.least(inner, depth + 1) for name, inner in properties.items()}
        return 2 + sum(costs[name] for name in required) + max(len(required) - 1, 0)

    def _array(self, said: dict[str, Any], depth: int) -> int:
        _only(said, "items", "minItems", "maxItems")
        if "items" not in said:
            raise _NotPlain
        item = self.least(said["items"], depth + 1)
        low, _ = _counts(said, "minItems", "maxItems", MAX_ITEMS)
        return 2 + low * item + max(low - 1, 0)


def _scalar(said: dict[str, Any], kind: str) -> int:
    if kind not in SCALARS:
        raise _NotPlain
    if kind == "string":
        _only(said, "minLength", "maxLength")
        return 2 + _counts(said, "minLength", "maxLength", MAX_LENGTH)[0]
    if kind == "integer":
        _only(said, "minimum", "maximum")
        low, high = said.get("minimum", 0), said.get("maximum", 9)
        # Some whole number of one digit is among them.
        if not (_is_whole(low) and _is_count(high, MAX_BOUND) and -MAX_BOUND <= low <= min(high, 9)):
            raise _NotPlain
        return 1
    _only(said)
    return SCALARS[kind]


def _several(said: dict[str, Any], kinds: list[Any]) -> int:
    _only(said)
    if not kinds or len(set(map(str, kinds))) < len(kinds) or not all(kind in SCALARS for kind in kinds):
        raise _NotPlain
    return min(SCALARS[kind] for kind in kinds)


def _enum(said: dict[str, Any], kind: Any) -> int:
    _only(said, "enum")
    values = said["enum"]
    if not isinstance(values, list) or not 0 < len(values) <= MAX_PARTS:
        raise _NotPlain
    if kind is not None and not (kind == "string" and all(isinstance(value, str) for value in values)):
        raise _NotPlain
    texts = [_spell(value) for value in values]
    if len(set(texts)) < len(texts):
        raise _NotPlain
    return min(map(len, texts))


def _spell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and (not value or _is_word(value)):
        return quoted(value)
    if _is_count(value, 9):
        return str(value)
    raise _NotPlain


def _only(said: dict[str, Any], *known: str) -> None:
    if not said.keys() <= set(known):
        raise _NotPlain


def _counts(said: dict[str, Any], least: str, most: str, limit: int) -> tuple[int, int]:
    low, high = said.get(least, 0), said.get(most, limit)
    if not _is_count(low, limit) or not _is_count(high, limit) or low > high:
        raise _NotPlain
    return low, high


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any, limit: int) -> bool:
    return _is_whole(value) and 0 <= value <= limit


def _is_word(text: Any) -> bool:
    return isinstance(text, str) and text != "" and text.isascii() and text.isprintable()

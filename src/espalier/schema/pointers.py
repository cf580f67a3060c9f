"""JSON pointers (RFC 6901) and `$ref` within one document: steps are escaped, read and followed here and nowhere else.

    below("/properties", "a/b")         "/properties/a~1b"
    split("/properties/a~1b")           ["properties", "a/b"]
    local_pointer("#/$defs/a%20b")      "/$defs/a b"
    follow(schema, "/$defs/a b")        the value there

It knows no addresses and no anchors: `read/documents.py` resolves references between documents, and calls this for the
fragment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

MAX_REFERENCES = 32
"""References that are followed one after another."""
ANY_KEY = "*"
"""In a path, in place of an array's index, and of a name that the model chose."""
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
"""A step into a list."""


class DanglingPointer(LookupError):
    """The document has no value at this pointer."""


def escape(step: str | int) -> str:
    """One step as a pointer spells it: `~` becomes `~0`, `/` becomes `~1`."""
    text = str(step)
    return text.replace("~", "~0").replace("/", "~1") if "~" in text or "/" in text else text


def unescape(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def below(pointer: str, *steps: str | int) -> str:
    """The pointer to a value below."""
    for step in steps:
        pointer = f"{pointer}/{escape(step)}"
    return pointer


def split(pointer: str) -> list[str]:
    """The steps of a pointer, unescaped; none for the whole document."""
    return [unescape(step) for step in pointer.split("/")[1:]]


def trail(document: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    """Every value on the way, each with the pointer to it, without the document itself. Raises DanglingPointer."""
    node, reached = document, ""
    for step in split(pointer):
        if isinstance(node, Mapping) and step in node:
            node = node[step]
        elif isinstance(node, list) and _INDEX.fullmatch(step) and int(step) < len(node):
            node = node[int(step)]
        else:
            raise DanglingPointer(pointer)
        reached = below(reached, step)
        yield reached, node


def follow(document: Any, pointer: str) -> Any:
    """The value at a pointer. Raises DanglingPointer."""
    on_the_way = [document, *(value for _, value in trail(document, pointer))]
    return on_the_way[-1]


def split_reference(reference: str) -> tuple[str, str]:
    """The address in front of `#`, and the fragment after it with its percent escapes decoded."""
    address, _, fragment = reference.partition("#")
    return address, unquote(fragment)


def is_pointer(fragment: str) -> bool:
    """Whether a decoded fragment is a JSON pointer, not an anchor."""
    return not fragment or fragment.startswith("/")


def local_pointer(reference: str) -> str | None:
    """The pointer of a reference into its own document; None for an anchor, and for another document."""
    address, pointer = split_reference(reference)
    return None if address or not is_pointer(pointer) else pointer


def dereference(node: Any, document: Any) -> Any:
    """Follow the `$ref` of a schema within its document, up to MAX_REFERENCES times. A schema whose reference leads out
    of the document, to nothing, or to something else than a schema is returned as it is."""
    for _ in range(MAX_REFERENCES):
        if not isinstance(node, Mapping) or not isinstance(node.get("$ref"), str):
            return node
        pointer = local_pointer(node["$ref"])
        if pointer is None:
            return node
        try:
            target = follow(document, pointer)
        except DanglingPointer:
            return node
        if not isinstance(target, Mapping | bool):
            return node
        node = target
    return node

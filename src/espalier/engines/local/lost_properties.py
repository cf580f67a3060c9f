"""Properties that the model wanted to write and that the order of a schema had already passed.

    {"end_line": ..., "path": ..., "start_line": ...}, only `path` required

    the model writes   {"path": "a.txt", "start_line": 5
    and then wants     , "end_line
    which the order of the schema refuses for good: a note says that end_line was lost

A run that leaves the order open remembers the most probable token of each step at which the mask refused it. At the end
the same constraint is read again with every order: what it would have allowed there, only the order refused. It knows
no model and no sampling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from espalier.constraints.base import Compiled
from espalier.constraints.spec import JsonSchema, Spec
from espalier.constraints.tools.grammar import in_schema_order
from espalier.constraints.tools.spec import ToolCalls
from espalier.decoding.step.record import RefusedFavourites
from espalier.engines.request_options import SCHEMA_ORDER
from espalier.errors import EspalierError
from espalier.schema.read.walk import subschemas

BEFORE_KEY = " \t\r\n,{"
"""What may stand in a token before the quotation mark of a key."""
ORDER = f'(properties come in the order of the schema; {SCHEMA_ORDER.name} "any" takes every order)'


def property_names(spec: Spec | None) -> tuple[str, ...]:
    """The names of the properties of all schemas in a constraint that leave their order open: those of an answer, and
    of tools whose arguments are JSON and come in the order of their schema all the same."""
    parts = [] if spec is None else list(spec.walk())
    schemas = [part.explicit().schema for part in parts if isinstance(part, JsonSchema) and part.order is None]
    schemas += [schema for part in parts if isinstance(part, ToolCalls) for schema in _ordered_tools(part)]
    nodes = (node for schema in schemas for _, node in subschemas(schema) if isinstance(node, dict))
    named = [names for node in nodes if isinstance(names := node.get("properties"), dict)]
    return tuple(dict.fromkeys(name for names in named if len(names) > 1 for name in names))


def _ordered_tools(calls: ToolCalls) -> list[Any]:
    """The schemas of tools whose arguments come in the order of their schema though nobody asked for it."""
    if calls.order is not None or not calls.wire.has_json:
        return []
    written = in_schema_order(calls)
    return [tool.schema for tool in calls.allowed if tool.name in written or calls.order_of(tool) != "any"]


class LostProperties:
    """Of all texts of one run. names: see `property_names`. compile_open: compiles the constraint with every order."""

    def __init__(self, names: Sequence[str], compile_open: Callable[[], Compiled]) -> None:
        self.refused: RefusedFavourites = {}
        self._keys = {json.dumps(name, ensure_ascii=False): name for name in names}
        self._compile_open = compile_open

    def notes(
        self, tokens: Sequence[int], spell: Callable[[int], bytes], before: str, *, refused: RefusedFavourites
    ) -> tuple[str, ...]:
        """A note for each property that was lost. tokens: all that were generated. before: what the prompt holds of
        the text. refused: of the text of a run of several sequences."""
        text = b"".join(map(spell, tokens)).decode("utf-8", "replace")
        wanted = dict(self._wanted(tokens, spell, text, refused or self.refused))
        if not wanted:
            return ()
        try:
            lost = list(self._lost(tokens, wanted, before))
        except EspalierError:  # every order is more than can be compiled: nothing is known
            return ()
        return tuple(f"{said} {ORDER}" for said in dict.fromkeys(lost))

    def _wanted(
        self, tokens: Sequence[int], spell: Callable[[int], bytes], text: str, favourites: RefusedFavourites
    ) -> Iterator[tuple[int, tuple[int, str]]]:
        """The steps at which a refused token may have begun a property: its number, the token, and what to say."""
        for step, written, wish in wishes(tokens, spell, favourites):
            if said := self._describe(written, wish, text):
                yield step, (favourites[step], said)

    def _describe(self, written: str, refused: str, text: str) -> str:
        """What to say of a token that was refused after `written` if only the order refused it; "" where it begins no
        property."""
        rest = text[len(written) :]
        # A thought or prose before the document may hold any number of quotation marks.
        said = (
            self._describe_key((begun + refused).lstrip(BEFORE_KEY), refused, rest, text)
            for begun in keys_begun(written)
        )
        return next(filter(None, said), "")

    def _describe_key(self, key: str, refused: str, rest: str, text: str) -> str:
        if key in ("", '"') and "," in refused:
            left = [own for own in self._keys if not _has_key(text, own)]
            shown = ", ".join(left[:3]) + (", …" if len(left) > 3 else "")
            return f"the model wanted one more property when none could be written any more (without {shown})" * bool(
                left
            )
        fits = [own for own in self._keys if len(key) > 1 and (own.startswith(key) or key.startswith(own))]
        left = [own for own in fits if not _has_key(rest, own)]
        return f"the model wanted the property {left[0]} when it could no longer be written" if len(left) == 1 else ""

    def _lost(self, tokens: Sequence[int], wanted: dict[int, tuple[int, str]], before: str) -> Iterator[str]:
        matcher = self._compile_open().matcher(before=before)
        for step, token in enumerate(tokens[: max(wanted) + 1]):
            if step in wanted and matcher.allows(wanted[step][0]):
                yield wanted[step][1]
            if not matcher.allows(token):
                return
            matcher.advance(token)


def _has_key(text: str, key: str) -> bool:
    return re.search(re.escape(key) + r"\s*:", text) is not None


def wishes(
    tokens: Sequence[int], spell: Callable[[int], bytes], favourites: RefusedFavourites
) -> Iterator[tuple[int, str, str]]:
    """The steps at which the favourite was refused: the number, what was written before, and what it spells."""
    read = b""
    for step, token in enumerate(tokens):
        if step in favourites:
            yield step, read.decode("utf-8", "replace"), spell(favourites[step]).decode("utf-8", "replace")
        read += spell(token)


def keys_begun(text: str) -> tuple[str, str]:
    """What may be written of a key in which a text ends: from its last quotation mark on, or nothing; the likelier one
    first."""
    pieces = re.split(r'(?<!\\)(?:\\\\)*"', text)
    inside, outside = f'"{pieces[-1]}', ""
    return (inside, outside) if len(pieces) % 2 == 0 else (outside, inside)

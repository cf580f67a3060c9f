"""Follows tool calls, so that arrays with unique items in their arguments are kept.

It looks for the beginnings of calls, and follows the arguments of each with the tracker of the tool's schema.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from espalier.chat.wire.formats import WireFormat
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.unique.tracker import DocumentTracker, ItemPosition
from espalier.constraints.watching import OpenString, RepeatedItem

BLANKS = rb"[ \t\r\n]*"
KEPT = 1_000
"""Bytes before the arguments of a call that are kept, besides its name and delimiters."""
OPEN = ord("{")


class CallPlace(NamedTuple):
    """A position among calls. before: the text since the last call, as far as it matters. begun: a call must come next,
    or has come. never: no call can come any more. tool: the name of the open call's tool; inside: the position in its
    arguments."""

    before: bytes = b""
    begun: bool = False
    never: bool = False
    tool: bytes = b""
    inside: ItemPosition = ItemPosition()


class CallsTracker:
    """Texts of a `ToolCalls`. tools: the tracker of each tool's arguments, by its name."""

    def __init__(self, spec: ToolCalls, tools: Mapping[bytes, DocumentTracker]) -> None:
        wire = spec.wire
        self._tools = dict(tools)
        self._head = re.compile(_head(wire, list(tools)) + rb"\Z")
        self._marker = wire.marker.encode() if spec.choice.mode == "auto" and spec.content is None else b""
        pieces = (wire.lead, wire.begin, wire.open, wire.head)
        self._lead = re.compile(
            b"".join(BLANKS + b"(?:%b)?" % re.escape(piece.strip().encode()) for piece in pieces) + BLANKS
        )
        self._kept = (
            KEPT + max(map(len, tools)) + sum(map(len, pieces)) + max(map(len, (wire.middle, *wire.other_middles)))
        )
        self.start = CallPlace()

    def feed(self, point: Hashable, data: bytes) -> CallPlace | RepeatedItem:
        assert isinstance(point, CallPlace)
        before, begun, never, tool, inside = point
        at = 0
        while at < len(data) and not never:
            if tool:
                after, at = self._tools[tool].scan(inside, data, at)
                if isinstance(after, RepeatedItem):
                    return after
                inside = after
                if inside.closed:
                    before, tool, inside = b"", b"", ItemPosition()
                continue
            byte = data[at]
            head = self._head.search(before) if byte == OPEN and (begun or not self._marker) else None
            if head is not None and (begun or self._lead.fullmatch(before, 0, head.start())):
                tool, begun = head[1], True
                inside = self._tools[tool].start
                continue
            before += data[at : at + 1]
            at += 1
            if self._marker and not begun:
                begun = before.endswith(self._marker)
                before = b"" if begun else before[-len(self._marker) :]
            elif begun:
                before = before[-self._kept :]
            elif not before.strip():
                before = b""
            else:
                never = len(before) > self._kept
        return CallPlace(b"" if never else before, begun, never, tool, inside)

    def is_watching(self, point: Hashable) -> bool:
        assert isinstance(point, CallPlace)
        return bool(point.tool) and self._tools[point.tool].is_watching(point.inside)

    def in_string(self, point: Hashable) -> bool:
        assert isinstance(point, CallPlace)
        return bool(point.tool) and self._tools[point.tool].in_string(point.inside)

    def is_idle(self, point: Hashable) -> bool:
        assert isinstance(point, CallPlace)
        return bool(point.tool) and self._tools[point.tool].is_idle(point.inside)

    def open_string(self, point: Hashable) -> OpenString | None:
        assert isinstance(point, CallPlace)
        return self._tools[point.tool].open_string(point.inside) if point.tool else None

    def count(self, point: Hashable) -> int:
        assert isinstance(point, CallPlace)
        return self._tools[point.tool].count(point.inside) if point.tool else 0

    def is_fresh(self, point: Hashable) -> bool:
        assert isinstance(point, CallPlace)
        return bool(point.tool) and self._tools[point.tool].is_fresh(point.inside)

    def listed(self, point: Hashable) -> Sequence[bytes]:
        assert isinstance(point, CallPlace)
        return self._tools[point.tool].listed(point.inside) if point.tool else ()


def _head(wire: WireFormat, names: list[bytes]) -> bytes:
    """An expression for the beginning of a call up to its arguments; its only group is the tool's name."""
    name = b"(" + b"|".join(re.escape(tool_name) for tool_name in sorted(names, key=len, reverse=True)) + b")"
    if wire.shape == "named":
        numbered = BLANKS.join((b"", re.escape(wire.id_mark.encode()), wire.id_form.encode())) if wire.id_mark else b""
        middles = (re.escape(middle.strip().encode()) for middle in (wire.middle, *wire.other_middles))
        return name + numbered + BLANKS + b"(?:" + b"|".join(middles) + b")" + BLANKS
    quoted = (re.escape(f'"{key}"'.encode()) for key in (wire.name_key, wire.args_key))
    first, second = quoted
    parts = (rb"\{", first, b":", b'"%b"' % name, b",", second, b":", b"")
    return BLANKS.join(parts)

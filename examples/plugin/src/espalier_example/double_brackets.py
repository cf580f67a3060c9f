"""The format `double_brackets` of tool calls: `[[call {"name": ..., "arguments": {...}} /call]]`."""

from __future__ import annotations

from espalier.chat.wire.formats import WireFormat

DOUBLE_BRACKETS = WireFormat(name="double_brackets", shape="json", head="[[call ", tail=" /call]]")

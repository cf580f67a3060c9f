"""`Content`: the blocks of a message as they grow, with the events that tell of them.

The whole reply and the stream both come from here. It knows neither the message around the blocks nor the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, ContentDelta, Delta, ReasoningDelta

Json = dict[str, Any]
SIGNATURE = "espalier"
"""Every thinking block has it: some clients drop blocks without one. It is not read."""


class Content:
    """hides_thinking: whether the text of the reasoning is left out."""

    def __init__(self, *, hides_thinking: bool = False) -> None:
        self.blocks: list[Json] = []
        self._hides_thinking = hides_thinking
        self._open: str | None = None  # the type of the last block while it grows
        self._text: list[str] = []  # of the last block

    def of(self, delta: Delta) -> Iterator[Json]:
        """The events of a delta."""
        if isinstance(delta, ReasoningDelta) and delta.text:
            yield from self._begin({"type": "thinking", "thinking": "", "signature": ""})
            if not self._hides_thinking:
                yield self._add("thinking_delta", "thinking", delta.text)
        elif isinstance(delta, ContentDelta) and delta.text:
            yield from self._begin({"type": "text", "text": ""})
            yield self._add("text_delta", "text", delta.text)
        elif isinstance(delta, CallBegun):
            yield from self.end()
            yield from self._begin({"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}})
        elif isinstance(delta, ArgumentsDelta) and delta.text:
            yield self._add("input_json_delta", "partial_json", delta.text)

    def end(self) -> Iterator[Json]:
        """The events of the end of the last block."""
        if self._open is None:
            return
        block, text = self.blocks[-1], "".join(self._text)
        if self._open == "thinking":
            block |= {"thinking": text, "signature": SIGNATURE}
            yield self._delta({"type": "signature_delta", "signature": SIGNATURE})
        elif self._open == "text":
            block["text"] = text
        else:
            block["input"] = _object(text)
        self._open = None
        yield {"type": "content_block_stop", "index": len(self.blocks) - 1}

    def _begin(self, block: Json) -> Iterator[Json]:
        if self._open == block["type"]:
            return
        yield from self.end()
        self.blocks.append(block)
        self._open, self._text = block["type"], []
        yield {"type": "content_block_start", "index": len(self.blocks) - 1, "content_block": {**block}}

    def _add(self, kind: str, name: str, text: str) -> Json:
        self._text.append(text)
        return self._delta({"type": kind, name: text})

    def _delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": len(self.blocks) - 1, "delta": delta}


def _object(text: str) -> Json:
    """The arguments of a call; an empty object for a call that was cut off, as the stop reason says."""
    try:
        metadata = json.loads(text)
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}

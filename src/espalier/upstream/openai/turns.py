"""The turn of an OpenAI-compatible server as one text, as our own models write one: reasoning between markers, content,
calls in a wire format. So that the same parser splits it and the same verdict judges it. It asks no server.
"""

from __future__ import annotations

import json

from espalier.chat.reasoning import REASONING, Reasoning
from espalier.chat.wire.formats import HERMES
from espalier.constraints.verdict import has_judge
from espalier.engines.base import Request
from espalier.engines.local.turns import PreparedTurn, as_messages, turn_with
from espalier.errors import CapabilityError, InputError, UpstreamError
from espalier.upstream.openai.chunks import CallPiece, Chunk

THINK = REASONING["think"]


def turn_of(request: Request) -> PreparedTurn:
    """The turn that is expected. Raises InputError for an empty raw prompt and for a choice of tools that names none,
    CapabilityError for a limit on reasoning."""
    if request.max_reasoning is not None:
        raise CapabilityError(
            "such a server counts reasoning in its own way", hint="leave `max_reasoning` out", field="max_reasoning"
        )
    if request.raw and not (request.prompt or request.prompt_ids):
        raise InputError("the prompt is empty", hint="this model needs at least one token", field="prompt")
    request.tool_choice.allowed(request.tools)  # raises if no tool has that name
    text = request.prompt or "" if request.raw else _show_prompt(request)
    return turn_with(request, text, "", HERMES if request.tools else None, markers_of(request))


def _show_prompt(request: Request) -> str:
    return "\n".join(str(message.get("content") or "") for message in as_messages(request))


def markers_of(request: Request) -> Reasoning | None:
    """The markers that reasoning gets, and by which it is found where the server leaves it in the content. By default
    there are none where our matcher has to check the whole text, for want of a judge."""
    if isinstance(request.reasoning, Reasoning):
        return request.reasoning
    is_usual = not request.raw and (request.constraint is None or has_judge(request.constraint))
    return THINK if request.reasoning == "auto" or (request.reasoning is None and is_usual) else None


class TurnText:
    """One answer's chunks as one text. For one reader. name: of the server's model. has_tools: whether it was offered
    tools."""

    def __init__(self, name: str, *, markers: Reasoning | None, has_tools: bool) -> None:
        self._name, self._markers, self._has_tools = name, markers, has_tools
        self._is_thinking = False
        self._call = -1  # the place of the open call
        self.dropped = False  # whether reasoning came that nobody asked for

    def feed(self, chunk: Chunk) -> str:
        """More of the text. Raises UpstreamError for calls that were not offered, and calls out of order."""
        texts = []
        if chunk.reasoning:
            if self._markers is None:
                self.dropped = True
            else:
                texts += ["" if self._is_thinking else self._markers.start, chunk.reasoning]
                self._is_thinking = True
        if chunk.text or chunk.calls:
            texts.append(self._thought())
        if chunk.text:
            if self._call >= 0:
                raise UpstreamError(f"{self._name} wrote more content after a call")
            texts.append(chunk.text)
        texts += [self._more(piece) for piece in chunk.calls]
        if chunk.finish is not None:
            texts.append(self._thought())
            if self._call >= 0 and chunk.finish == "stop":
                texts.append("}" + HERMES.tail)
        return "".join(texts)

    def _thought(self) -> str:
        """The end of the reasoning, if it is open."""
        if not self._is_thinking or self._markers is None:
            return ""
        self._is_thinking = False
        return self._markers.end

    def _more(self, piece: CallPiece) -> str:
        if not self._has_tools:
            raise UpstreamError(f"{self._name} calls tools, which it was not offered")
        if piece.index == self._call:
            return piece.arguments
        if piece.index != self._call + 1 or not piece.name:
            raise UpstreamError(f"{self._name} sent the pieces of its calls out of order")
        before = "" if self._call < 0 else "}" + HERMES.tail + HERMES.separator
        self._call = piece.index
        return f'{before}{HERMES.head}{{"name": {json.dumps(piece.name)}, "arguments": {piece.arguments}'

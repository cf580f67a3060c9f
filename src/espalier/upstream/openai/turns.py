"""The turn of an OpenAI-compatible server as one text, as our own models write one: reasoning between markers, content,
calls in a wire format. So that the same parser splits it and the same verdict judges it. It asks no server.
"""

from __future__ import annotations

import json

from espalier.chat.reasoning import REASONING, Reasoning
from espalier.chat.wire.formats import UPSTREAM, WIRE_FORMATS, wire_format
from espalier.constraints.verdict import has_judge
from espalier.engines.base import Request
from espalier.engines.local.turns import PreparedTurn, as_messages, turn_with
from espalier.errors import CapabilityError, InputError, UpstreamError
from espalier.upstream.link import excerpt
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
    return turn_with(request, text, "", UPSTREAM if request.tools else None, markers_of(request))


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
    tools. notes: what of the answer is not in the text, and what may be mistaken."""

    def __init__(self, name: str, *, markers: Reasoning | None, has_tools: bool) -> None:
        self._name, self._markers, self._has_tools = name, markers, has_tools
        self._is_thinking = False
        self._call: CallPiece | None = None  # the first piece of the open call
        self._arguments: list[str] = []  # of the open call
        self._indices: set[int] = set()
        self._content: list[str] = []  # where tools were offered
        self._dropped: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        notes = [f"the server sent {what}; it is not part of the result" for what in self._dropped]
        if quoted := [marker for marker in MARKERS if marker and marker in "".join(self._content)]:
            notes.append(f"the server gave {quoted[0]!r} as content: it is no call")
        return tuple(notes)

    def feed(self, chunk: Chunk) -> str:
        """More of the text. Raises UpstreamError for calls that were not offered, calls out of order, and a call whose
        arguments are no object."""
        texts = []
        if chunk.reasoning:
            if self._markers is None:
                self._dropped["reasoning beside the text"] = None
            else:
                texts += ["" if self._is_thinking else self._markers.start, chunk.reasoning]
                self._is_thinking = True
        if chunk.text or chunk.calls:
            texts.append(self._thought())
        if self._call is None:
            texts.append(chunk.text)
            self._content += [chunk.text] if self._has_tools else []
        elif chunk.text.strip():
            self._dropped["text after its calls"] = None
        texts += [self._more(piece) for piece in chunk.calls]
        if chunk.finish is not None:
            texts.append(self._thought())
            if self._call is not None and chunk.finish == "stop":
                texts.append(self._close())
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
        begun = ""
        if self._begins(piece):
            begun = UPSTREAM.head if self._call is None else self._close() + UPSTREAM.separator + UPSTREAM.head
            begun += f'{{"name": {json.dumps(piece.name)}, "arguments": '
            self._call, self._arguments = piece, []
            self._indices |= set() if piece.index is None else {piece.index}
        self._arguments.append(piece.arguments)
        return begun + piece.arguments

    def _begins(self, piece: CallPiece) -> bool:
        """Whether a piece begins another call. Raises UpstreamError for more of a call that is closed, or that never
        began."""
        before = self._call
        if before is None or self._is_another(piece, before):
            closed = self._indices if before is None else self._indices - {before.index}
            if piece.name and piece.index not in closed:
                return True
        elif piece.index in (None, before.index):
            return False
        raise UpstreamError(f"{self._name} sent the pieces of its calls out of order")

    def _is_another(self, piece: CallPiece, before: CallPiece) -> bool:
        """Whether a piece with a name belongs to another call than the one before: servers tell their calls apart by
        ids, by places, or by nothing but that one is complete."""
        if not piece.name:
            return False
        if piece.id and before.id:
            return piece.id != before.id
        return piece.index != before.index or _is_object("".join(self._arguments))

    def _close(self) -> str:
        """The end of the open call. Raises UpstreamError for arguments that are no object: no client could read such a
        call, and as text it would look like an answer."""
        arguments = "".join(self._arguments).strip()
        if arguments and not _is_object(arguments):
            name = "" if self._call is None else self._call.name
            raise UpstreamError(
                f"{self._name} calls {name} with arguments that are no object: {excerpt(arguments)}",
                hint="another model, or a schema of its arguments that says more",
            )
        return ("" if arguments else "{}") + "}" + UPSTREAM.tail


MARKERS = tuple(dict.fromkeys(wire_format(name).marker for name in WIRE_FORMATS.builtins() if name != UPSTREAM.name))
"""What begins a call in the text of some model."""


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False

"""Compiles `Channels`: one member for the answer and one for each place of a call's recipient, read in parallel.

Each member is the messages up to the header of its own message (`headers.py`), and then an inner constraint, as in
`After`. Special tokens that are spelled like the markers count as their text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from espalier.chat.reading.channel_header import (
    ANALYSIS,
    ANSWER,
    CHANNEL,
    COMMENTARY,
    CONSTRAIN,
    FINAL,
    MARKERS,
    MESSAGE,
    OPENING,
    message_begun,
)
from espalier.chat.wire.formats import WireFormat
from espalier.constraints.after.border import Border
from espalier.constraints.after.marker import Waiting
from espalier.constraints.after.matcher import CompiledAfter
from espalier.constraints.base import Compiled
from espalier.constraints.channels.headers import Headers, build_headers
from espalier.constraints.channels.spec import Channels
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.any_of_matcher import CompiledAnyOf
from espalier.constraints.spec import Regex, Spec
from espalier.constraints.tools.compile import compile_tool_calls
from espalier.constraints.tools.spec import ToolCalls
from espalier.errors import InputError
from espalier.tokens.vocab import Vocab

TYPES = (f" {CONSTRAIN}json", f"{CONSTRAIN}json", "")
"""How a header names the type of a body. Behind a recipient it may lack the marker."""
RECIPIENT = " to=functions."
ANY_TEXT = Regex("(?s:.*)")


class MessageCalls(ToolCalls):
    """Calls without the beginning of their header."""

    __slots__ = ("_wire",)
    _wire: WireFormat

    def __init__(self, calls: ToolCalls, wire: WireFormat, *, most: int | None) -> None:
        super().__init__(
            calls.tools,
            choice=replace(calls.choice, mode="required"),
            format=calls.format,
            max_calls=calls.max_calls if most is None else most,
            whitespace=calls.whitespace,
            order=calls.order,
        )
        object.__setattr__(self, "_wire", wire)

    @property
    def wire(self) -> WireFormat:
        return self._wire


def compile_channels(spec: Channels, compiler: Compiler) -> Compiled:
    """Raises what the compilers of the answer and of the calls raise, and as `compile_after`."""
    members = [
        _compile_member(spec, inner, headers, marker, compiler) for inner, headers, marker in members_of(spec, compiler)
    ]
    if len(members) == 1:
        return members[0]
    return CompiledAnyOf(spec, [spec.kind] * len(members), members, compiler.trie)


def members_of(spec: Channels, compiler: Compiler) -> Iterator[tuple[Spec, Headers, str]]:
    """What stands behind a header, the automaton up to there, and how its header is called in messages."""
    thoughts = [ANALYSIS] if spec.thinks else []
    if spec.has_answer:
        free = [*thoughts, COMMENTARY] if spec.final is None else thoughts
        yield spec.final or ANY_TEXT, _headers(free, [f"{CHANNEL}{FINAL}{name}{MESSAGE}" for name in TYPES]), ANSWER
    calls = spec.calls
    if calls is None or calls.choice.mode == "none":
        return
    types = [*TYPES, " json"]
    channels = [f"{CHANNEL}{name}" for name in (COMMENTARY, ANALYSIS)]
    forms: tuple[tuple[list[str], list[str]], ...] = (
        ([channel + RECIPIENT for channel in channels], [f"{name}{MESSAGE}" for name in types]),
        ([RECIPIENT], [f"{channel}{name}{MESSAGE}" for channel in channels for name in types]),
    )
    for ends, middles in forms:
        yield _inner_calls(calls, middles, compiler.vocab), _headers([*thoughts, COMMENTARY], ends), ends[0]


def _headers(free: Sequence[str], ends: Sequence[str]) -> Headers:
    return build_headers(free=[f"{CHANNEL}{name}{MESSAGE}" for name in free], ends=ends)


def _inner_calls(calls: ToolCalls, middles: Sequence[str], vocab: Vocab) -> MessageCalls:
    """One or more calls behind the recipient's namespace; one where the token behind a call ends the turn."""
    wire = calls.wire
    is_end = vocab.special_id(wire.end) in vocab.eos_ids
    wire = replace(
        wire,
        head="",
        middle=middles[0],
        other_middles=tuple(middles[1:]),
        separator=f"{wire.separator}{wire.head}",
        end="" if is_end else wire.end,
    )
    return MessageCalls(calls, wire, most=1 if is_end else None)


def _compile_member(spec: Channels, inner: Spec, headers: Headers, marker: str, compiler: Compiler) -> CompiledAfter:
    is_calls = isinstance(inner, MessageCalls)
    compiled = compile_tool_calls(inner, compiler) if isinstance(inner, MessageCalls) else compiler.compile(inner)
    waiting = Waiting(
        marker.encode(),
        compiler.vocab,
        compiler.trie,
        tags=[marker.encode() for marker in MARKERS],
        hurries=spec.max_tokens is not None,
        before=headers.text,
    )
    border = Border(compiled, compiler.trie, gap=False, beginnings=())

    def answer_in(before: str) -> str | None:
        state, rest = headers.follow(message_begun(before).encode("utf-8", "surrogatepass"))
        return rest.decode("utf-8", "surrogatepass") if state == len(headers.text) - 1 else None

    def start_in(before: str) -> int:
        if OPENING not in before:
            return headers.text.start
        state, _ = headers.follow(message_begun(before).encode("utf-8", "surrogatepass"))
        if state < 0:
            what = "call" if is_calls else "answer"
            raise InputError(f"the prompt has begun a message of the model's that is no {what}", field="prompt")
        return state

    return CompiledAfter(spec, waiting, border, max_before=spec.max_tokens, answer_in=answer_in, start_in=start_in)

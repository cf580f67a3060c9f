"""Read a turn that consists of messages in channels, as gpt-oss writes it (harmony).

    <|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant<|channel|>commentary to=functions.find
     <|constrain|>json<|message|>{"word": "x"}<|call|>

What stands before `<|message|>` is the header of a message. It names the channel, and for a call the recipient, before
or behind the channel. A message in the channel `analysis` is reasoning, one to a tool of the request is a call, and any
other one is content. The prompt holds the first `<|start|>assistant`. A final message is the last one: its body goes to
the end of the text, so that an answer may quote the format.
"""

from __future__ import annotations

from collections.abc import Collection

from espalier.chat.reading.call_shape import check_name, shown
from espalier.chat.reading.channel_header import END, MAX_HEADER, MESSAGE, START, MessageHeader, read_header
from espalier.chat.reading.incoming import Emit, FormatMismatch, IncomingText, IncompleteText, Reading
from espalier.chat.reading.json_pieces import copy_value
from espalier.chat.reading.turn_builder import ReasoningTrimmer, TurnBuilder

CALL, RETURN = "<|call|>", "<|return|>"
MARKER = "<|"
"""With what each marker begins."""
FUNCTIONS = "functions."
BUILT_IN = ("browser", "container", "python")
"""Namespaces of tools that gpt-oss was trained with, and that the server of a model would have to run."""
BETWEEN = "\n\n"
"""Stands between the texts of two messages."""
CUT_REASONING = "the reasoning was cut off"


class ChannelWalk:
    """Reads a text to its end. names: the tools that may be called, all if empty; None if none may be called."""

    def __init__(self, text: IncomingText, builder: TurnBuilder, names: Collection[str] | None) -> None:
        self._text = text
        self._builder = builder
        self._names = names
        self._has_content = self._has_reasoning = False

    def run(self) -> Reading[None]:
        """Raises FormatMismatch for a message of another role and a call that breaks, IncompleteText if the text ends
        in a header, in the reasoning or in a call."""
        goes_on, is_begun = True, False
        while goes_on:
            header = yield from self._header(is_begun)
            if header is None:
                self._begin_content()
                yield from self._text.all(self._builder.content)
                return
            if header.role not in ("", "assistant"):
                raise FormatMismatch(f"the model writes a message of {shown(header.role)}", self._text.offset)
            goes_on, is_begun = (yield from self._body(header)), True

    def _header(self, is_begun: bool) -> Reading[MessageHeader | None]:
        """Consume a header; None for a text that has none, whose position is then unchanged. is_begun: whether
        `<|start|>` has come."""
        text = self._text
        parts: list[str] = []

        def add(piece: str) -> None:
            parts.append(piece)
            if sum(map(len, parts)) > MAX_HEADER:
                raise FormatMismatch("a header does not end", text.offset)

        text.hold()
        try:
            yield from text.skip()
            if not is_begun and not (yield from text.sees(MARKER)) and not (yield from text.sees("to=")):
                text.back()
                return None
        except IncompleteText:
            text.back()
            return None
        try:
            ends = yield from text.until(MESSAGE, add)
        except FormatMismatch:
            text.back()
            return None
        if not ends:
            raise IncompleteText("the text was cut off in the header of a message")
        yield from text.meets(MESSAGE)
        text.release()
        return read_header("".join(parts))

    def _body(self, header: MessageHeader) -> Reading[bool]:
        """Read the body of a message; whether another message follows it."""
        if header.recipient:
            return (yield from self._call(header.recipient))
        if header.is_thought:
            return (yield from self._reason())
        self._begin_content()
        return bool((yield from self._copy(self._builder.content, is_last=header.is_last)))

    def _begin_content(self) -> None:
        if self._has_content:
            self._builder.content(BETWEEN)
        self._has_content = True

    def _reason(self) -> Reading[bool]:
        text, builder = self._text, self._builder
        trimmed = ReasoningTrimmer(builder)
        builder.reasoning("")
        yield from text.skip()
        if self._has_reasoning:
            builder.reasoning(BETWEEN)
        self._has_reasoning = True
        goes_on = yield from self._copy(trimmed.take)
        if goes_on is None:
            trimmed.flush()
            raise IncompleteText(CUT_REASONING)
        return goes_on

    def _call(self, recipient: str) -> Reading[bool]:
        """Read the body of a message to a tool. One to a tool that the request does not have is a fault."""
        text, builder = self._text, self._builder
        try:
            name = self._tool(recipient)
            yield from text.skip()
            if (yield from text.need()) != "{":
                raise FormatMismatch("the arguments are no object", text.offset)
        except FormatMismatch as fault:
            builder.fault(str(fault))
            return bool((yield from self._copy(_ignore)))
        builder.begin(name)
        yield from copy_value(text, builder.arguments)
        builder.end()
        behind: list[str] = []
        goes_on = yield from self._copy(behind.append)
        if "".join(behind).strip():
            builder.fault(str(FormatMismatch("there is text behind the arguments of a call", text.offset)))
        return bool(goes_on)

    def _tool(self, recipient: str) -> str:
        """The tool that a recipient names. Raises FormatMismatch."""
        names, at = self._names, self._text.offset
        name = recipient.removeprefix(FUNCTIONS)
        if name == recipient and name not in (names or ()):
            if recipient.partition(".")[0] in BUILT_IN:
                raise FormatMismatch(f"{recipient} is a built-in tool of the model's, which nothing runs here", at)
            raise FormatMismatch(f"there is no tool {shown(recipient)}", at)
        if names is None:
            raise FormatMismatch(f"the model calls {shown(name)}, and the request has no tools", at)
        check_name(name, names, at)
        return name

    def _copy(self, emit: Emit, *, is_last: bool = False) -> Reading[bool | None]:
        """Pass on a body as it arrives. Returns whether another message follows; None if the text ends before the
        message does. is_last: nothing follows the message but a marker of its end."""
        text = self._text
        while (yield from text.until(MARKER, emit)):
            text.hold()
            goes_on = yield from self._ends(is_last)
            if goes_on is not None:
                text.release()
                return goes_on
            text.back()
            for _ in MARKER:
                emit((yield from text.take()))
        return None

    def _ends(self, is_last: bool) -> Reading[bool | None]:
        """Whether another message follows, behind the end of this one; None if it does not end here."""
        text = self._text
        for marker in (END, CALL, RETURN):
            try:
                if not (yield from text.meets(marker)):
                    continue
            except IncompleteText:
                continue
            if not (yield from text.wait()):
                return False
            try:
                return True if not is_last and (yield from text.meets(START)) else None
            except IncompleteText:  # cut off before the next header
                if is_last:
                    return None
                yield from text.all(_ignore)
                return False
        return None


def _ignore(_text: str) -> None:
    pass

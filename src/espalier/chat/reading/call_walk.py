"""Read a text that may contain calls: content before a call, the markers around calls, one call after another.

The inside of a call is read by its shape (`call_shape.py`). Reasoning is not known here.
"""

from __future__ import annotations

from espalier.chat.reading.call_shape import CallShape
from espalier.chat.reading.incoming import SPACE, FormatMismatch, IncomingText, IncompleteText, Reading
from espalier.chat.reading.json_pieces import copy_value
from espalier.chat.reading.turn_builder import TurnBuilder
from espalier.chat.wire.formats import WireFormat

CUT_LIST = "the list of calls was cut off"


class CallWalk:
    """Reads a text to its end. Text is held back from where a call may have begun until the call's name is known; if it
    is no call, the text is read again as content."""

    def __init__(self, wire: WireFormat, shape: CallShape, text: IncomingText, builder: TurnBuilder) -> None:
        self._wire = wire
        self._shape = shape
        self._text = text
        self._builder = builder
        self._is_line_blank = True  # so far

    def run(self) -> Reading[None]:
        """Raises FormatMismatch if a call breaks after its name, IncompleteText if the text ends in a call."""
        yield from self._read_marked() if self._wire.marker else self._alone()

    # Called by the shape

    def begin(self, name: str) -> None:
        self._text.release()
        self._builder.begin(name)

    def arguments(self, text: str) -> None:
        self._builder.arguments(text)

    # Formats with a marker

    def _read_marked(self) -> Reading[None]:
        marker, text, builder = self._wire.marker, self._text, self._builder
        while (yield from text.until(marker, self._content)):
            text.hold()
            if not (self._is_line_blank or (yield from self._begins_call())):
                yield from text.meets(marker)
                self._content(marker)
                continue
            complete = builder.complete_calls
            fault = yield from self._attempt()
            if fault is None:
                continue
            builder.fault(str(fault))
            if builder.complete_calls == complete:  # the text is back at the marker, which begins no call
                yield from text.meets(marker)
                self._content(marker)

    def _content(self, text: str) -> None:
        _, line_end, last = text.rpartition("\n")
        self._is_line_blank = (bool(line_end) or self._is_line_blank) and not last.strip(SPACE)
        self._builder.content(text)

    def _begins_call(self) -> Reading[bool]:
        """Whether the marker at the held position, which stands within a line, begins a call; a mention is released."""
        text = self._text
        yield from text.meets(self._wire.marker)
        try:
            if self._wire.call_opener:
                yield from text.skip()
                begins = yield from text.sees(self._wire.call_opener)
            else:
                begins = self._wire.begins_call((yield from text.need()))
        except IncompleteText:
            begins = False
        text.back()
        if begins:
            text.hold()
        return begins

    # Formats without a marker

    def _alone(self) -> Reading[None]:
        self._text.hold()
        try:
            opens = yield from self._leads_to_opener()
        except IncompleteText:
            opens = False
        if opens:
            fault = yield from self._attempt()
            if fault is not None:
                yield from self._excuse(fault)
        else:
            self._text.back()
        yield from self._text.all(self._builder.content)

    def _leads_to_opener(self) -> Reading[bool]:
        """Read what may stand before a call, and return whether a call may be next. Raises IncompleteText if the text
        ends."""
        text = self._text
        yield from text.skip()
        if self._wire.lead and (yield from text.meets(self._wire.lead)):
            yield from text.skip()
        return (yield from text.need()) == self._wire.opener[:1]

    def _excuse(self, fault: FormatMismatch) -> Reading[None]:
        """Report the fault, unless the supposed call is JSON that was never meant as one."""
        text, builder = self._text, self._builder
        if (fault.is_foreign or self._wire.exact) and not builder.complete_calls:
            return
        if not fault.is_certain and not (self._wire.close and builder.complete_calls):
            yield from text.until(self._wire.opener[:1], builder.content)
            try:
                yield from copy_value(text, builder.content)
            except (FormatMismatch, IncompleteText):
                pass
            else:
                return
        builder.fault(str(fault))

    # Calls

    def _attempt(self) -> Reading[FormatMismatch | None]:
        """Read calls from the held position. If one is no call, return why; the text is then back behind the last
        call."""
        try:
            yield from self._calls()
        except FormatMismatch as fault:
            if self._builder.open_call:
                raise
            self._text.back()
            return fault
        except IncompleteText:
            if not self._wire.exact or self._builder.open_call or self._builder.complete_calls:
                raise
            # Nothing proves that this is the beginning of a call, and content would be lost.
            self._text.back()
            return FormatMismatch("a call was cut off in its beginning", self._text.offset)
        return None

    def _calls(self) -> Reading[None]:
        wire, text = self._wire, self._text
        yield from self._expect(wire.begin)
        yield from self._expect(wire.open)
        more = True
        while more:
            yield from self._expect(wire.head)
            yield from text.skip()
            yield from self._shape.read(text, self)
            yield from self._expect(wire.tail)
            self._builder.end()
            text.hold()
            more = yield from (self._goes_on() if wire.close.strip() else self._another())

    def _goes_on(self) -> Reading[bool]:
        """Whether a list of calls, which must be closed, continues after a call."""
        wire, text = self._wire, self._text
        try:
            for piece in ("", wire.separator):
                yield from self._expect(piece)
                yield from text.skip()
                if (yield from text.meets(wire.close.strip())):
                    text.release()
                    return False
        except IncompleteText:
            raise IncompleteText(CUT_LIST) from None
        return True

    def _another(self) -> Reading[bool]:
        """Whether another call follows; if not, everything after the last call is still unread."""
        wire, text = self._wire, self._text
        separator, head = wire.separator.strip(), wire.head.strip()
        is_between = False
        try:
            yield from text.skip()
            is_between = bool(separator) and (yield from text.meets(separator))
            yield from text.skip()
            if head:
                begins = yield from text.sees(head)
            elif wire.marker:
                begins = self._shape.starts_with((yield from text.need()))
            else:
                begins = yield from self._leads_to_opener()
        except IncompleteText:
            if is_between:
                raise IncompleteText("the text was cut off between two calls") from None
            begins = False
        if not begins:
            text.back()
        return begins

    def _expect(self, piece: str) -> Reading[None]:
        for part in piece.split():
            yield from self._text.expect(part)

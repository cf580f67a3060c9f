"""Tags that the model wanted to write within a raw text, and that the format of the calls cannot write there.

    <parameter=content>
    ends with </parameter

    and then the model wants `>`, which would end the text: a note says that the text is not what the model meant

A model that forgets a closing tag meets the same refusal at the next argument's tag. Where the tag ended the text, the
refusal comes behind it, at what the model goes on with. It knows no model, no sampling and no schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from espalier.chat.argument_types import ALL, ArgumentTypes
from espalier.chat.reading.turn_parser import TurnParser
from espalier.chat.tools import ToolCall
from espalier.decoding.step.record import RefusedFavourites
from espalier.engines.local.lost_properties import keys_begun, wishes

STRUCTURE = '<,:{}[]"'
"""What stands behind the end of a text if the call goes on or ends."""
VALUE_BEGINS = re.compile(r'"((?:[^"\\]|\\.)*)": \Z')


class LostTexts:
    """Of all texts of one run. text_ends: what no raw text of an argument contains. types: of the tools' arguments.
    make_parser: makes a parser of the turn."""

    def __init__(
        self, text_ends: Sequence[str], types: Mapping[str, ArgumentTypes], make_parser: Callable[[], TurnParser]
    ) -> None:
        self.refused: RefusedFavourites = {}
        self._text_ends, self._types, self._make_parser = text_ends, types, make_parser

    def notes(
        self, tokens: Sequence[int], spell: Callable[[int], bytes], _before: str, *, refused: RefusedFavourites
    ) -> tuple[str, ...]:
        """A note for each tag that was refused within a text. tokens: all that were generated. refused: of the text of
        a run of several sequences."""
        wished = wishes(tokens, spell, refused or self.refused)
        return tuple(dict.fromkeys(note for _, written, wish in wished for note in self._describe(written, wish)))

    def _describe(self, written: str, refused: str) -> Iterator[str]:
        """What to say where a token completes a tag within a text, or goes on with the text behind its end."""
        wanted, close = written + refused, self._text_ends[0]
        tags = ((wanted.find(end, max(len(written) - len(end) + 1, 0)), end) for end in self._text_ends)
        at, end = min(((at, end) for at, end in tags if at >= 0), default=(-1, close))
        ended = written.rstrip()
        if at < 0 and ended.endswith(close) and refused.strip() and refused.strip()[0] not in STRUCTURE:
            at = len(ended) - len(close)
        call = None if at < 0 else self._call_at(wanted[:at])
        if call is not None and self._is_in_text(call):
            yield (
                f"the model wanted to write {end} at character {at}, in a text of the call of {call.name}: "
                "no text can contain it in this format, so the argument is not what the model meant"
            )

    def _call_at(self, text: str) -> ToolCall | None:
        """The call in which a text ends."""
        parser = self._make_parser()
        parser.feed(text)
        calls = parser.turn.calls
        return calls[-1] if calls and not calls[-1].is_complete else None

    def _is_in_text(self, call: ToolCall) -> bool:
        """Whether a call that goes on stands in a raw text. A value that may be JSON too is not passed on yet."""
        value = VALUE_BEGINS.search(call.arguments)
        if value is None:
            return bool(keys_begun(call.arguments)[0])
        return call.name in self._types and "string" in self._types[call.name].get(value[1], ALL)

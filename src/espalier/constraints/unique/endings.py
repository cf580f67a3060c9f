"""Tokens that end the open item of an array and at most begin the next one.

Whether such a token repeats an item is told by what it adds to the open one, and whether a completion is left by what
the next item may become: neither needs the text after the token. It knows no automaton.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from espalier.constraints.unique.room import ENDLESS, MOST_DIGITS, ItemRoom
from espalier.constraints.watching import OpenItem

ITEM = rb'(?P<item>(?:"(?:[^"\\]|\\.)*"|[^"\[\]{},])*)'
"""The rest of an item without brackets."""
END = rb'(?P<end>[ \t\r\n]*(?:\][^\[{]*|,(?P<next>[ \t\r\n]*(?:[^"\[\]{},]*|"(?:[^"\\]|\\.)*))))'
"""What ends an item: the array's bracket, and what follows it without opening another, or a comma and the beginning of
the next item."""
OUTSIDE = re.compile(ITEM + END + rb"?\Z", re.DOTALL)
INSIDE = re.compile(rb'(?P<item>")' + END + rb"?[ \t\r\n]*\Z", re.DOTALL)
"""The part of a string that is open, from its quotation mark on."""
EXPONENT = re.compile(rb"[eE]")


class ItemEnding(NamedTuple):
    """How a token ends the open item."""

    #: What it adds to the item; in an open string from the string's quotation mark on.
    item: bytes
    #: Its beginning of the next item; None where it begins none, and the array's end or a comma may come.
    following: bytes | None

    def next_item(self) -> OpenItem | None:
        """The next item after the token, None where it begins none."""
        if self.following is None:
            return None
        return OpenItem(0, 0, b'"' in self.following, is_escaped=False)

    def limited(self, room: ItemRoom) -> ItemRoom:
        """What the next item may become for sure. room: by the automaton alone."""
        begun = self.following or b""
        if room.is_number and (len(begun) > MOST_DIGITS or EXPONENT.search(begun)):
            return ItemRoom()
        return room


ANYTHING = ItemRoom(ENDLESS)


def ending_of(data: bytes, *, in_string: bool) -> ItemEnding | None:
    """How a token ends an item that has no open bracket; None where it does not, or does more. data: its bytes; in an
    open string from the string's quotation mark on."""
    match = (INSIDE if in_string else OUTSIDE).match(data)
    if match is None or (match["end"] is None and not match["item"].endswith(b'"')):
        return None
    following = match["next"]
    if following is not None and following.endswith(b"\\"):
        return None
    return ItemEnding(match["item"], following)

"""How many values the open item of an array may still become, as far as that is plain to see.

The completion of fewest bytes has places where more may be written: `{"name": "` is completed by `"}`, and any number
of letters may come before the quotation mark. Each number of them is another value, so that more of them than there are
earlier items leave one that differs. `123` may have more digits in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from espalier.automata.masks.machine import Machine, State

ENDLESS = 2**31
LETTERS = b"a0"
"""One of them goes on in most strings."""
MOST_LETTERS = 300
"""Strings of a bounded length are tried up to here."""
MORE_DIGITS = 3
NUMBERS: int = 10**MORE_DIGITS - 1
"""So many choices of these digits are left when one is taken."""
MOST_DIGITS = 14 - MORE_DIGITS
"""Numbers of so many characters may have a 1 and these digits more, and are still all different as floats."""
DIGITS = b"0123456789"
ONE, MINUS, ESCAPE = b"1-\\"
PART = re.compile(rb'"|[\[\]{},]|[-0-9][-+.0-9eE]*|[a-z]+')
STRING_END = re.compile(rb'(?:[^"\\]|\\.)*')
COLON = re.compile(rb"[ \t\r\n]*:")


class ItemRoom(NamedTuple):
    """What may still be written of an item. values: so many values at least; 0 where it is not known that there are
    several. is_number: only by more digits of a number that may be open already."""

    values: int = 0
    is_number: bool = False


def find_room(
    machine: Machine,
    plainest: Callable[[State], bytes | None],
    state: State,
    *,
    depth: int,
    in_string: bool,
    is_escaped: bool,
) -> ItemRoom:
    """What the item may become from a state on. depth, in_string, is_escaped: as of an `OpenItem`."""
    rest = plainest(state)
    best = ItemRoom()
    if rest is None:
        return best
    done = 0
    for at, is_string in _places(rest, depth, in_string=in_string, is_escaped=is_escaped):
        for byte in rest[done:at]:
            state = None if state is None else machine.step(state, byte)
        done = at
        if state is None:  # a named token stands in the completion: its bytes are no bytes
            break
        values = _strings(machine, state, rest[at]) if is_string else _numbers(machine, state)
        if values > best.values:
            best = ItemRoom(values, is_number=not (is_string or at))
        if values == ENDLESS:
            break
    return best


def _places(rest: bytes, depth: int, *, in_string: bool, is_escaped: bool) -> Iterator[tuple[int, bool]]:
    """The offsets in a completion at which the open item may become longer, and whether that is in a string (of a
    value, not of a name). The item ends with its last bracket, or, where it has none, with what comes after it."""
    at = 0
    if in_string:
        yield from _string_places(rest, int(is_escaped))
        at = _string_end(rest, int(is_escaped)) + 1
    else:
        yield 0, False
    while (part := PART.search(rest, at)) is not None:
        at = part.end()
        match part[0]:
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
                if depth <= 0:
                    return
            case b"," if not depth:
                return
            case b'"':
                yield from _string_places(rest, at)
                at = _string_end(rest, at) + 1
            case number if part.start() and (number[0] in DIGITS or number[0] == MINUS):
                yield part.start(), False


def _string_end(rest: bytes, start: int) -> int:
    end = STRING_END.match(rest, start)
    return len(rest) if end is None else end.end()


def _string_places(rest: bytes, start: int) -> Iterator[tuple[int, bool]]:
    end = _string_end(rest, start)
    if end < len(rest) and not COLON.match(rest, end + 1):
        yield from ((at, True) for at in range(start, end + 1) if at == start or rest[at - 1] != ESCAPE)


def _strings(machine: Machine, state: State, following: int) -> int:
    """How many numbers of equal letters may come before the byte that follows."""
    after = machine.step(state, following)
    most = 0
    for letter in LETTERS:
        longer, count = machine.step(state, letter), 0
        if longer == state:
            return ENDLESS
        while longer is not None and count < MOST_LETTERS and machine.step(longer, following) == after:
            count += 1
            further = machine.step(longer, letter)
            if further == longer:
                return ENDLESS
            longer = further
        most = max(most, count)
    return most


def _numbers(machine: Machine, state: State) -> int:
    """NUMBERS where a 1 may come now, and then three digits, whichever they are."""
    further = machine.step(state, ONE)
    for _ in range(MORE_DIGITS):
        after: set[State] = {None if further is None else machine.step(further, digit) for digit in DIGITS}
        if len(after) > 1 or None in after:
            return 0
        further = after.pop()
    return NUMBERS

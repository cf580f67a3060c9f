"""The numba kernels that decode what safety filters read: bytes to characters, and the escapes of strings to what they
stand for. They know no filters; numbers stand for what has been read so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from espalier.constraints.safety.readings import NESTED, SINGLE
from espalier.kernels.compiled import kernel

# compiled with: 5e7414f7

INT64: Any = np.int64
"""Makes an int64 of a number in the source, for which numba would compile a function once more."""
OFF, PLAIN, SLASH, HEX, HALF, HALF_SLASH, HALF_HEX = 0, 1, 2, 3, 4, 5, 6
"""What has been read of an escape: no quotation mark yet; none; a backslash; `\\u` or `\\x` and some digits; half of a
surrogate pair; that and a backslash; that and the beginning of the other half. In the low three bits; then the number
of digits that are missing (4 bits), the value of the digits (16 bits), and ten bits of the first half."""
MORE = 8
"""With SLASH or HALF_SLASH of a nested string: there were several backslashes. With OFF: a backslash."""
UNKNOWN = 0xFFFD
"""What a broken escape, or half of a surrogate pair, is read as."""


@kernel()
def quote_of(reading: int) -> Any:
    """The quotation mark of a decoded reading."""
    return INT64(39 if reading == SINGLE else 34)


@kernel()
def _digit(point: int) -> Any:
    if 48 <= point <= 57:
        return point - 48
    point |= 32
    return point - 87 if 97 <= point <= 102 else -1


@kernel()
def decode(escape: int, point: int, quote: int) -> Any:
    """Read one character of the text between quotation marks. Returns the new state of the escape, and what has been
    decoded by it, in this order: how many UNKNOWN, how many backslashes, one character or -1, whether the string
    ends."""
    mode = escape & 7
    if mode == OFF:
        return (PLAIN if point == quote else OFF), 0, 0, -1, False
    unknown = 0
    if mode in (HEX, HALF_HEX):
        digit = _digit(point)
        if digit >= 0:
            left = ((escape >> 3) & 15) - 1
            value = (((escape >> 7) & 0xFFFF) << 4) | digit
            half = escape >> 23
            if left:
                return mode | left << 3 | value << 7 | half << 23, 0, 0, -1, False
            if mode == HALF_HEX:
                if 0xDC00 <= value < 0xE000:
                    return PLAIN, 0, 0, 0x10000 + (half << 10) + (value & 0x3FF), False
                unknown = 1
            if 0xD800 <= value < 0xDC00:
                return HALF | (value & 0x3FF) << 23, unknown, 0, -1, False
            return PLAIN, unknown, 0, UNKNOWN if 0xDC00 <= value < 0xE000 else value, False
        unknown = 2 if mode == HALF_HEX else 1
        mode = PLAIN
    elif mode == HALF:
        if point == 92:
            return HALF_SLASH | (escape >> 23) << 23, 0, 0, -1, False
        unknown = 1
        mode = PLAIN
    elif mode == HALF_SLASH:
        if point == 117:
            return HALF_HEX | 4 << 3 | (escape >> 23) << 23, 0, 0, -1, False
        unknown = 1
        mode = SLASH
    if mode == SLASH:
        if point == 117:
            return HEX | 4 << 3, unknown, 0, -1, False
        if point == 120:
            return HEX | 2 << 3, unknown, 0, -1, False
        slash = 0
        if point == 110:
            point = 10
        elif point == 116:
            point = 9
        elif point == 114:
            point = 13
        elif point == 98:
            point = 8
        elif point == 102:
            point = 12
        elif point != 34 and point != 39 and point != 92 and point != 47:
            slash = 1  # a backslash that begins no escape is read as itself
        return PLAIN, unknown, slash, point, False
    if point == quote:
        return PLAIN, unknown, 0, -1, True
    if point == 92:
        return SLASH, unknown, 0, -1, False
    return PLAIN, unknown, 0, point, False


@kernel()
def decode_nested(escape: int, point: int) -> Any:
    """As `decode`, for the strings inside of strings, at any depth: between quotation marks that a backslash escapes.
    However many backslashes begin an escape, it is that escape; a quotation mark with several is a part of the text,
    one with none ends the string outside, and with it this one."""
    mode = escape & 7
    if mode == OFF:
        if point == 92:
            return OFF | MORE, 0, 0, -1, False
        return (PLAIN if escape == OFF | MORE and point == 34 else OFF), 0, 0, -1, False
    if point == 92 and mode in (SLASH, HALF_SLASH):
        return escape | MORE, 0, 0, -1, False
    if point == 34 and mode in (SLASH, HALF_SLASH):
        unknown = 1 if mode == HALF_SLASH else 0
        if escape & MORE:
            return PLAIN, unknown, 0, 34, False
        return PLAIN, unknown, 0, -1, True
    if mode == HALF_SLASH:
        escape &= ~MORE
    elif mode == SLASH:
        escape = SLASH
    if point == 34:
        _, unknown, slash, _, _ = decode(escape, INT64(32), INT64(-1))  # what is cut off here
        return OFF, unknown, slash, -1, True
    return decode(escape, point, INT64(-1))


@kernel()
def decode_as(escape: int, point: int, reading: int) -> Any:
    """As `decode`, in one of the readings."""
    if reading == NESTED:
        return decode_nested(escape, point)
    return decode(escape, point, quote_of(reading))


@kernel()
def flush(escape: int) -> Any:
    """The text ends: how many UNKNOWN and backslashes are read for an escape that is not complete, and whether there is
    a string to end."""
    mode = escape & 7
    unknown = 2 if mode == HALF_HEX else 1 if mode >= HEX else 0
    return unknown, 1 if mode in (SLASH, HALF_SLASH) else 0, mode != OFF


@kernel()
def next_character(begun: int, byte: int) -> Any:
    """The next byte of a character. begun: how many bytes it still needs (4 bits) and its length (4 bits) and the value
    so far, from 8 on; 0 between characters. Returns -1 for invalid bytes, else 2 * begun, or 2 * point + 1."""
    if begun == 0:
        if byte < 0x80:
            return 2 * byte + 1
        if 0xC2 <= byte < 0xE0:
            return 2 * (1 | 2 << 4 | (byte & 31) << 8)
        if 0xE0 <= byte < 0xF0:
            return 2 * (2 | 3 << 4 | (byte & 15) << 8)
        if 0xF0 <= byte < 0xF5:
            return 2 * (3 | 4 << 4 | (byte & 7) << 8)
        return -1
    if byte & 0xC0 != 0x80:
        return -1
    left, length, value = (begun & 15) - 1, (begun >> 4) & 15, (begun >> 8) << 6 | (byte & 63)
    if length == 3 and left == 1 and (value < 0x20 or 0x360 <= value < 0x380):
        return -1
    if length == 4 and left == 2 and (value < 0x10 or value > 0x10F):
        return -1
    return 2 * value + 1 if left == 0 else 2 * (left | length << 4 | value << 8)

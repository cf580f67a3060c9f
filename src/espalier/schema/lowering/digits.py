"""Writes ranges of numbers as expressions over digits: whole numbers and plain decimals of any size.

    whole(8, 12)             [8-9] | "1" [0-2]
    decimals(5, 20, 1)       0.5 to 2.0: bounds count in units of the last digit, so they are whole numbers too

It does not know schemas.
"""

from __future__ import annotations

from espalier.grammar.ast import EMPTY, CharClass, Literal, Node, Repeat, alt
from espalier.schema.lowering.linear import join
from espalier.time_limit import check as check_time

Options = list[Node]


def whole(low: int, high: int) -> Node:
    """The whole numbers from `low` to `high`, without leading zeros and without -0."""
    options: Options = []
    if low < 0:
        options.append(join(Literal("-"), alt(*_naturals(max(1, -high), -low))))
    if high >= 0:
        options += _naturals(max(low, 0), high)
    return _either(options)


def decimals(low: int, high: int, places: int) -> Node:
    """The numbers from `low` to `high`, counted in 10**-places, with up to so many digits after the point; no -0."""
    if places == 0:
        return whole(low, high)
    options: Options = []
    if low < 0 and -low >= max(1, -high):
        options.append(join(Literal("-"), _either(_positive(max(1, -high), -low, places))))
    if high >= 0:
        options += _positive(max(low, 0), high, places)
    return _either(options)


def digits(low: int, high: int) -> Node:
    """Between `low` and `high` digits, any."""
    if high == 0:
        return EMPTY
    nine = _digit(0, 9)
    return nine if low == high == 1 else Repeat(nine, low, high)


def _naturals(low: int, high: int) -> Options:
    """The whole numbers from `low` to `high`, both at least 0."""
    options: Options = []
    if low == 0 <= high:
        if high < 9:
            return [_digit(0, high)]
        options.append(Literal("0"))
        low = 1
    full: list[int] = []  # lengths at which every number is in the range
    parts: Options = []
    for length in range(len(str(low)), len(str(high)) + 1 if high >= low else 0):
        first, last = max(low, 10 ** (length - 1)), min(high, 10**length - 1)
        if first == 10 ** (length - 1) and last == 10**length - 1:
            full.append(length)
        else:
            parts += _same_length(str(first), str(last))
    if full:
        options.append(join(_digit(1, 9), digits(full[0] - 1, full[-1] - 1)))
    return options + parts


def _same_length(low: str, high: str) -> Options:
    """The digit strings from `low` to `high`, which have one length."""
    if low == high:
        return [Literal(low)]
    same = next(i for i in range(len(low)) if low[i] != high[i])
    common, a, b = low[:same], int(low[same]), int(high[same])
    rest = len(low) - same - 1
    if low[same + 1 :].strip("0") == "":
        low_options, a = [], a - 1
    else:
        low_options = _at_least(low[same + 1 :])
    if high[same + 1 :].strip("9") == "":
        high_options, b = [], b + 1
    else:
        high_options = _at_most(high[same + 1 :])
    options = [join(Literal(low[same]), tail) for tail in low_options]
    if a + 1 <= b - 1:
        options.append(join(_digit(a + 1, b - 1), digits(rest, rest)))
    options += [join(Literal(high[same]), tail) for tail in high_options]
    return [_after(common, option) for option in options]


def _at_least(low: str) -> Options:
    """Digit strings of the length of `low` that are at least `low`."""
    bare = low.rstrip("0")
    options = [_after(bare, digits(len(low) - len(bare), len(low) - len(bare)))]
    for i, char in enumerate(bare):
        floor = int(char) + 1
        if floor <= 9:
            rest = len(low) - i - 1
            options.append(_after(low[:i], join(_digit(floor, 9), digits(rest, rest))))
    return options


def _at_most(high: str) -> Options:
    """Digit strings of the length of `high` that are at most `high`."""
    bare = high.rstrip("9")
    options = [_after(bare, digits(len(high) - len(bare), len(high) - len(bare)))]
    for i, char in enumerate(bare):
        if char != "0":
            rest = len(high) - i - 1
            options.append(_after(high[:i], join(_digit(0, int(char) - 1), digits(rest, rest))))
    return options


# Decimals: fewer digits after the point than `places` mean trailing zeros.


def _positive(low: int, high: int, places: int) -> Options:
    """The decimals from `low` to `high`, both at least 0, in units of the last digit."""
    if low > high:
        return []
    unit = 10**places
    (a, after_a), (b, after_b) = divmod(low, unit), divmod(high, unit)
    if a == b:
        return [join(Literal(str(a)), _fraction(_padded(after_a, places), _padded(after_b, places)))]
    options: Options = []
    first, last = a, b
    if after_a:
        options.append(join(Literal(str(a)), _fraction(_padded(after_a, places), "9" * places)))
        first += 1
    if after_b < unit - 1:
        options.append(join(Literal(str(b)), _fraction("0" * places, _padded(after_b, places))))
        last -= 1
    if first <= last:
        options.append(join(_either(_naturals(first, last)), _fraction("0" * places, "9" * places)))
    return options


def _padded(value: int, places: int) -> str:
    return str(value).zfill(places)


def _fraction(low: str, high: str) -> Node:
    """The point and the digits after it (or nothing), for digit strings from `low` to `high` of one length."""
    zero = low.strip("0") == ""
    between = _either(_digits_between(low, high))
    if between == alt():
        return EMPTY if zero else between
    after = join(Literal("."), between)
    return Repeat(after, 0, 1) if zero else after


def _digits_between(low: str, high: str) -> Options:
    """One to `len(low)` digits that, padded with zeros at the end, are between `low` and `high`."""
    size = len(low)
    if size == 0 or low > high:
        return []
    bare = low.rstrip("0")
    if low == high:
        return [_zeros(bare, size)]
    if not bare and high == "9" * size:
        return [digits(1, size)]
    same = next(i for i in range(size) if low[i] != high[i])
    common, a, b = low[:same], int(low[same]), int(high[same])
    rest = size - same - 1
    options: Options = []
    if len(bare) <= same:
        # Short spellings of `low` itself, no longer than the digits that both bounds have in common.
        options += [Literal(low[:n]) for n in range(max(1, len(bare)), same + 1)]
    low_rest, high_rest = low[same + 1 :], high[same + 1 :]
    if low_rest.strip("0") == "":
        a -= 1
    else:
        options += [_after(common + low[same], tail) for tail in _tails(low_rest, "9" * rest)]
    if high_rest.strip("9") == "":
        b += 1
    else:
        options += [_after(common + high[same], tail) for tail in _tails("0" * rest, high_rest)]
    if a + 1 <= b - 1:
        options.append(_after(common, join(_digit(a + 1, b - 1), digits(0, rest))))
    return options


def _tails(low: str, high: str) -> Options:
    """As `_digits_between`, for a range that ends at all zeros or all nines; the empty string is allowed."""
    size = len(low)
    if low.strip("0") == "":
        bare = high
        while bare and bare[-1] == "9":
            check_time()
            bare = bare[:-1]
        options: Options = [EMPTY]
        for i, char in enumerate(bare):
            if char != "0":
                options.append(_after(high[:i], join(_digit(0, int(char) - 1), digits(0, size - i - 1))))
            if i + 1 < len(bare):
                options.append(Literal(high[: i + 1]))
        if bare:
            nines = size - len(bare)
            # After `bare` come nines in the bound, so any digits fit; without nines, only zeros that are not written.
            options.append(_after(bare, digits(0, nines)))
        return options
    bare = low.rstrip("0")
    options = [_after(bare, digits(0, size - len(bare)))]
    for i, char in enumerate(bare):
        floor = int(char) + 1
        if floor <= 9:
            options.append(_after(low[:i], join(_digit(floor, 9), digits(0, size - i - 1))))
    return options


def _zeros(text: str, size: int) -> Node:
    """`text` followed by zeros, up to `size` digits; at least one digit."""
    more = size - len(text)
    if not text:
        return Repeat(Literal("0"), 1, size)
    return join(Literal(text), Repeat(Literal("0"), 0, more)) if more else Literal(text)


def _digit(low: int, high: int) -> Node:
    return Literal(str(low)) if low == high else CharClass(((48 + low, 48 + high),))


def _after(text: str, node: Node) -> Node:
    return join(Literal(text), node) if text else node


def _either(options: Options) -> Node:
    """One of the options, without duplicates."""
    return alt(*dict.fromkeys(options))

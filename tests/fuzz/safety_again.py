"""Some published patterns of the safety filter, phrases and custom texts, written a second time from docs/safety.md:
plain loops over the text, without the catalogue, its expressions, or the automaton."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache

DIGITS = frozenset(string.digits)
LOWER = DIGITS | frozenset(string.ascii_lowercase)


def is_found(text: str, *, names: Sequence[str], phrases: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether a pattern of `AGAIN`, a phrase as whole words, or a custom text occurs in the text, or in what stands
    between two quotation marks in it, or in a string inside of a string, decoded."""
    return any(
        any(AGAIN[name](plain) for name in names)
        or any(_as_words(plain, same(phrase)) for phrase in phrases)
        or any(same(custom) in plain for custom in texts)
        for plain in map(same, (text, *strings(text, '"'), *strings(text, "'"), *nested_strings(text)))
    )


CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "/": "/", "\\": "\\"}
HEX = frozenset(string.hexdigits)


class _Units:
    """A string that is read: its UTF-16 units, so that halves of a character find each other."""

    def __init__(self) -> None:
        self.units: list[int] = []
        self.is_escaped: list[bool] = []

    def add(self, unit: int, is_escaped: bool = False) -> None:
        self.units.append(unit)
        self.is_escaped.append(is_escaped)

    def add_escape(self, text: str, at: int) -> int:
        """Read an escape, whose letter stands at `at`, or a backslash alone; returns where it ends."""
        letter = text[at : at + 1]
        if letter in ("u", "x"):
            size, end = 4 if letter == "u" else 2, at + 1
            while end < len(text) and end <= at + size and text[end] in HEX:
                end += 1
            is_whole = end == at + 1 + size
            self.add(int(text[at + 1 : end], 16) if is_whole else 0xFFFD, is_whole and size == 4)
            return end
        self.add(ord(CONTROLS.get(letter, "\\")))
        return at + (letter in CONTROLS)

    def text(self) -> str:
        return _joined(self.units, self.is_escaped)


def strings(text: str, quote: str) -> Iterator[str]:
    """The strings between quotation marks, decoded, character by character."""
    at = text.find(quote)
    while 0 <= at < len(text):
        at += 1
        read = _Units()
        while at < len(text) and text[at] != quote:
            if text[at] == "\\":
                at = read.add_escape(text, at + 1)
            else:
                read.add(ord(text[at]))
                at += 1
        yield read.text()


def nested_strings(text: str) -> Iterator[str]:
    """The strings inside of strings, decoded: from a quotation mark after a backslash to the next one with one
    backslash, where another begins, or with none. Backslashes in a row begin one escape."""
    at = text.find('\\"')
    while at >= 0:
        at += 2
        read = _Units()
        is_inside = True
        while is_inside and at < len(text):
            letter = at
            while text[letter : letter + 1] == "\\":
                letter += 1
            if text[letter : letter + 1] == '"' and letter - at < 2:
                yield read.text()
                read = _Units()
                is_inside = letter > at
                at = letter + 1
            elif letter > at:
                at = read.add_escape(text, letter)
            else:
                read.add(ord(text[at]))
                at += 1
        if is_inside:
            yield read.text()
            return
        at = text.find('\\"', at)


def _joined(units: list[int], is_escaped: list[bool]) -> str:
    found, at = "", 0
    while at < len(units):
        unit, after = units[at], units[at + 1] if at + 1 < len(units) else 0
        if 0xD800 <= unit < 0xDC00 <= after < 0xE000 and is_escaped[at] and is_escaped[at + 1]:
            found += chr(0x10000 + ((unit - 0xD800) << 10) + after - 0xDC00)
            at += 2
            continue
        found += "\ufffd" if 0xD800 <= unit < 0xE000 else chr(unit)
        at += 1
    return found


def same(text: str) -> str:
    """The text without case and width, character by character; a character whose fold is longer stays."""
    return "".join(map(_plain, text))


@cache
def _plain(char: str) -> str:
    fold = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", char).casefold())
    return fold if len(fold) == 1 else char


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _as_words(text: str, phrase: str) -> bool:
    for at in _places(text, phrase):
        end = at + len(phrase)
        glued_before = _is_word(phrase[0]) and at > 0 and _is_word(text[at - 1])
        glued_after = _is_word(phrase[-1]) and end < len(text) and _is_word(text[end])
        if not glued_before and not glued_after:
            return True
    return False


def _keys(prefixes: Sequence[str], chars: frozenset[str], count: int) -> Callable[[str], bool]:
    """A prefix at the start of a word, not after a hyphen, and so many characters of a set."""

    def found(plain: str) -> bool:
        for prefix in prefixes:
            for at in _places(plain, prefix):
                rest = plain[at + len(prefix) : at + len(prefix) + count]
                starts = at == 0 or not (_is_word(plain[at - 1]) or plain[at - 1] == "-")
                if starts and len(rest) == count and chars.issuperset(rest):
                    return True
        return False

    return found


def _hidden(prefix: str, before: str, count: int) -> Callable[[str], bool]:
    """As `_keys`, of letters and digits, one or two of `before` first: not two `x` in a row."""
    some = frozenset(before)

    def found(plain: str) -> bool:
        for at in _places(plain, prefix):
            if at and (_is_word(plain[at - 1]) or plain[at - 1] == "-"):
                continue
            rest = plain[at + len(prefix) :]
            head = 1 if rest[:1] in some - {"x"} and rest else 2 if rest[:1] == "x" and rest[1:2] in some - {"x"} else 0
            body = rest[head : head + count]
            if head and rest[head - 1 : head] and len(body) == count and LOWER.issuperset(body):
                return True
        return False

    return found


def _any(*tests: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda plain: any(test(plain) for test in tests)


BODY = string.ascii_lowercase + string.digits + "_-"


def _ssn(plain: str) -> bool:
    for at in range(len(plain) - 10):
        area, group, serial = plain[at : at + 3], plain[at + 4 : at + 6], plain[at + 7 : at + 11]
        gap, gap_again = plain[at + 3], plain[at + 6]
        if plain[at + 11 : at + 12] in DIGITS:
            continue
        if not DIGITS.issuperset(area + group + serial) or gap not in "- " or gap != gap_again:
            continue
        if area in ("000", "666") or area[0] == "9" or group == "00" or serial == "0000":
            continue
        before = plain[at - 1] if at else ""
        if before == " ":
            is_alone = at == 1 or plain[at - 2] not in DIGITS
        else:
            is_alone = not before or not (_is_word(before) or before in ".@-")
        if is_alone:
            return True
    return False


ISSUERS = {
    **dict.fromkeys((*map(str, range(40, 50)), "50", "56", "57", "58", "60", "62", "63", "64", "65", "67"), (16, 19)),
    **dict.fromkeys((*map(str, range(51, 56)), *map(str, range(22, 28)), "35"), (16,)),
    **dict.fromkeys(("34", "37"), (15,)),
    **dict.fromkeys(("30", "36", "38", "39"), (14, 16)),
}
SHAPES = ((4, 4, 4, 4), (4, 6, 5), (4, 6, 4))


def _card(plain: str) -> bool:
    return any(_card_at(plain, at) for at in range(len(plain)) if at == 0 or not _is_part(plain[at - 1]))


def _is_part(char: str) -> bool:
    return _is_word(char) or char in ".@-"


def _card_at(plain: str, at: int) -> bool:
    end = at
    while end < len(plain) and plain[end] in DIGITS:
        end += 1
    if _is_card(plain[at:end]):
        return True
    for shape in SHAPES:
        digits, place = "", at
        for index, size in enumerate(shape):
            group = plain[place : place + size]
            if len(group) < size or not DIGITS.issuperset(group):
                break
            digits += group
            place += size
            if index < len(shape) - 1:
                if plain[place : place + 1] not in (" ", "-"):
                    break
                place += 1
        else:
            if (place == len(plain) or plain[place] not in DIGITS) and _is_card(digits):
                return True
    return False


def _is_card(digits: str) -> bool:
    return len(digits) in ISSUERS.get(digits[:2], ()) and _luhn([int(one) for one in digits])


def _luhn(digits: Sequence[int]) -> bool:
    doubled = [int(one) for digit in digits[-2::-2] for one in str(2 * digit)]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _email(plain: str) -> bool:
    for at in _places(plain, "@"):
        if at == 0 or plain[at - 1] not in LOWER | set("_%+-"):
            continue
        end = at + 1
        while end < len(plain) and plain[end] in LOWER | set(".-"):
            end += 1
        labels = plain[at + 1 : end].split(".")
        for place, label in enumerate(labels):
            if not label:
                break
            if place and len(label) > 1 and set(label[:2]) <= set(string.ascii_lowercase):
                return True
    return False


def _private_key(plain: str) -> bool:
    kinds = ("", "rsa ", "dsa ", "ec ", "openssh ", "encrypted ", "pgp ")
    if any(f"-----begin {kind}private key" in plain for kind in kinds):
        return True
    ends = {"putty-user-key-file-": 1, "age-secret-key-1": 20}
    return any(
        len(rest := plain[at + len(one) : at + len(one) + count]) == count
        and (DIGITS if count == 1 else LOWER).issuperset(rest)
        for one, count in ends.items()
        for at in _places(plain, one)
    )


def _chained_rm(plain: str) -> bool:
    for at in _places(plain, "rm"):
        if not plain[:at].rstrip(" \t").endswith((";", "|", "&")):
            continue
        after = plain[at + 2 :]
        if after.startswith("${ifs}"):
            target = after[len("${ifs}") :]
        else:
            target = after.lstrip(" \t")
            if target == after:
                continue
        if target and not target[0].isspace() and target[0] not in "=(":
            return True
    return False


AGAIN: dict[str, Callable[[str], bool]] = {
    "aws_key_id": _keys(["akia", "asia", "agpa", "aroa", "aida"], LOWER, 16),
    "card": _card,
    "chained_rm": _chained_rm,
    "email": _email,
    "github_token": _any(*(_hidden(f"gh{kind}_", BODY, 30) for kind in "pousr"), _hidden("github_pat_", BODY, 16)),
    "huggingface_token": _hidden("hf_", BODY, 30),
    "private_key": _private_key,
    "ssn": _ssn,
    "shop_token": _any(
        _keys([f"shp{kind}_" for kind in ("at", "ss", "ca", "pa")], frozenset("0123456789abcdef"), 32),
        _keys(["sq0atp-", "sq0csp-"], frozenset(BODY), 20),
    ),
}
"""Whether a pattern occurs in a text without case and width, by name."""
